"""The work on the event loop after a command, whether its caller still waits for the answer or has left."""

from typing import Protocol

from popmq_server.contract.commands import DeleteGroup, DeleteTopic, PurgeTopic, SetConsumeMode, SetFilter, UpdateTopic
from popmq_server.embedded.loop.consumers import Consumers
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.loop.parked_pulls import ParkedPulls
from popmq_server.embedded.operations import NextPurge
from popmq_server.monitoring.metrics import Metrics
from popmq_server.values.message import dead_letter_topic, results_topic


class Live(Protocol):
    """The parts of a broker that have to hear of changes."""

    waiters: Waiters
    watchers: Waiters
    quota_waiters: Waiters
    pulls: ParkedPulls
    consumers: Consumers
    metrics: Metrics


def topic_changed(broker: Live, done: UpdateTopic | PurgeTopic | NextPurge) -> None:
    """Pops that wait for a quota look again."""
    broker.quota_waiters.look_again(done.name)


def mode_changed(broker: Live, done: SetConsumeMode) -> None:
    broker.quota_waiters.look_again(done.topic)


def filter_changed(broker: Live, done: SetFilter) -> None:
    """Each parked call of the group looks again: one that names the old filter is refused, wherever it is in line."""
    for lot in (broker.waiters, broker.watchers, broker.quota_waiters):
        lot.look_again(done.topic, done.group)
    broker.pulls.waiters.look_again(done.topic)


def topic_deleted(broker: Live, done: DeleteTopic) -> None:
    """A topic that is created again under this name has no queue locks and begins its metrics at zero."""
    broker.consumers.locks.forget(topic=done.name)
    broker.metrics.forget(topic=done.name)


def group_deleted(broker: Live, done: DeleteGroup) -> None:
    """Forgets locks and metrics of a group, its dead letters and results; its clients have to report again."""
    letters = dead_letter_topic(done.name)
    broker.consumers.locks.forget(group=done.name, topic=letters)
    broker.consumers.sessions.forget(done.name)
    broker.metrics.forget(group=done.name)
    broker.metrics.forget(topic=letters)
    broker.metrics.forget(topic=results_topic(done.name))


#: By command.
AFTERWARDS = (
    UpdateTopic.followed_by(topic_changed)
    | PurgeTopic.followed_by(topic_changed)
    | NextPurge.followed_by(topic_changed)
    | SetConsumeMode.followed_by(mode_changed)
    | SetFilter.followed_by(filter_changed)
    | DeleteTopic.followed_by(topic_deleted)
    | DeleteGroup.followed_by(group_deleted)
).handlers
