"""What follows a command in the event loop, whether its caller still waits for the answer or has left."""

from collections.abc import Callable
from typing import Any, Protocol

from popmq_server.contract.commands import (
    DeleteGroup,
    DeleteTopic,
    PurgeTopic,
    SetConsumeMode,
    SetFilter,
    UpdateTopic,
)
from popmq_server.embedded.loop.consumers import Consumers
from popmq_server.embedded.loop.parked_pulls import ParkedPulls
from popmq_server.embedded.loop.waiters import Waiters
from popmq_server.monitoring.metrics import Metrics
from popmq_server.values.message import dead_letter_topic


class Broker(Protocol):
    """What the event loop keeps for topics and groups by name."""

    metrics: Metrics
    consumers: Consumers
    pulls: ParkedPulls
    waiters: Waiters
    watchers: Waiters
    quota_waiters: Waiters


def _topic_changed(broker: Broker, done: UpdateTopic | PurgeTopic) -> None:
    """Pops that wait for a quota look again."""
    broker.quota_waiters.look_again(done.name)


def _mode_changed(broker: Broker, done: SetConsumeMode) -> None:
    broker.quota_waiters.look_again(done.topic)


def _filter_changed(broker: Broker, done: SetFilter) -> None:
    """Each parked call of the group looks again: one that names the old filter is refused, wherever it is in line."""
    for lot in (broker.waiters, broker.watchers, broker.quota_waiters):
        lot.look_again(done.topic, done.group)
    broker.pulls.waiters.look_again(done.topic)


def _topic_deleted(broker: Broker, done: DeleteTopic) -> None:
    """A topic that is created again under this name has no queue locks and begins its metrics at zero."""
    broker.consumers.locks.forget(topic=done.name)
    broker.metrics.forget(topic=done.name)


def _group_deleted(broker: Broker, done: DeleteGroup) -> None:
    """The same for a group and its dead letter topic; its clients have to report again."""
    letters = dead_letter_topic(done.name)
    broker.consumers.locks.forget(group=done.name, topic=letters)
    broker.consumers.sessions.forget(done.name)
    broker.metrics.forget(group=done.name)
    broker.metrics.forget(topic=letters)


AFTERWARDS: dict[type, Callable[[Broker, Any], None]] = {
    UpdateTopic: _topic_changed,
    PurgeTopic: _topic_changed,
    SetConsumeMode: _mode_changed,
    SetFilter: _filter_changed,
    DeleteTopic: _topic_deleted,
    DeleteGroup: _group_deleted,
}
