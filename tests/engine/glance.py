"""A query for the position of a group inside a transaction: tests need more of it than clients get."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from popmq_server.contract.operations import LANE_POP, Command
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import (
    FWAIT_KEY,
    FWAIT_VALUE,
    RQ_KEY,
    RQ_VALUE,
    STAT_KEY,
)
from popmq_server.embedded.writer import core
from tests.engine.search.model.model_facts import RetryRow, Stand
from tests.engine.unlisted import Unlisted


class Glance(Command[Stand], Unlisted, lane=LANE_POP):
    """Runs in the order of the pops; changes nothing."""

    topic: str
    group: str


def glance(tx: Tx, command: Glance) -> Stand:
    """The position of a group in a topic; empty if one of them does not exist."""
    topic, group = registry.topic(tx, command.topic), readers.group(tx, command.group)
    if topic is None or group is None:
        return Stand([], [], set())
    where = (group.group_id, topic.topic_id)
    retry, waiting = [], set()
    for key, value in tx.kv.scan("rq", STAT_KEY.pack(*where)):
        position, size, attempts, queue, offset, _, ck_id, member = RQ_VALUE.unpack_from(value)
        read, part = Log(tx.kv).fetch(topic.topic_id, position, size), tx.state.leases.get((ck_id, 0))
        tied = ck_id if ck_id and part is not None and part.released >> member & 1 else 0
        retry.append(RetryRow(RQ_KEY.unpack(key)[2], (queue, offset), attempts, read[0] if read else 0, tied))
    for key, value in tx.kv.scan("fwait", STAT_KEY.pack(*where)):
        waiting.add((FWAIT_VALUE.unpack_from(value)[3], FWAIT_KEY.unpack(key)[3]))
    return Stand([tx.state.poff.get((*where, queue), 0) for queue in range(topic.queues)], retry, waiting)


@contextlib.contextmanager
def glances() -> Iterator[None]:
    """The engine takes Glance as a command."""
    with mock.patch.dict(core.HANDLERS, {Glance: glance}):
        yield
