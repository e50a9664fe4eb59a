"""Results as they are stored: messages of the topic `%RESULT%group`, whose retention drops them by age.

    Ack, Settle ─▶ results of deliveries ─▶ id, body, content type as tag ┐
    StoreResults ▶ without a delivery ────▶ the same                      │
    dead letter ─▶ why it failed ─────────▶ id, dead_letter               ├─▶ one append for all of a request
    forgotten ───▶ ids ───────────────────▶ id, tag "forgotten"           ┘

The id is that of the message for which it is. The last record of an id counts, so a message that was acked twice has
its last result, and a forgotten one has none. The bytes are a popmq.v1.Message, to be browsed, and also a
popmq.v1.Result: both have the same numbers for these fields, and answers need no encoding.

The topic has the sizes, counts, limits and retention of every topic. Where its records are: places.py.

See docs/decisions/0055-results.md.
"""

import logging
from collections.abc import Iterable
from hashlib import blake2b

from popmq_server.contract.commands import ForgetResults, GivenResult, StoreResults
from popmq_server.embedded.rules.topics import readers
from popmq_server.embedded.rules.topics.log import Log, located
from popmq_server.embedded.rules.topics.registry import ensure_results_topic
from popmq_server.embedded.rules.topics.topic import enqueue
from popmq_server.embedded.state.space import GROW, messages_bytes
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint
from popmq_server.errors import Refused, group_not_found, invalid
from popmq_server.values import fields
from popmq_server.values.message import varint
from popmq_server.values.outgoing import NO_TAG, Outgoing, hash8
from popmq_server.values.records import Group

log = logging.getLogger("popmq.results")

_ID, _BODY, _TAG = (bytes([number << 3 | 2]) for number in (fields.MESSAGE_ID, fields.BODY, fields.TAG))
#: What follows the id in the record of a forgotten result: a tag that no content type is, since that has a `/`.
FORGOTTEN = _TAG + b"\x09forgotten"


def id_field(message_id: str) -> bytes:
    """The beginning of the record of a message id."""
    raw = message_id.encode()
    return _ID + varint(len(raw)) + raw


def keeping(tx: Tx, name: str) -> Group:
    """The group, if it keeps results. Raises Refused."""
    group = readers.group(tx, name)
    if group is None:
        raise group_not_found(name)
    if not group.results_keep_ms:
        raise _keeps_none(group, "group")
    return group


def check_kept(group: Group) -> None:
    """Refuses results of a group that keeps none."""
    if not group.results_keep_ms:
        raise _keeps_none(group, "results")


def _keeps_none(group: Group, field: str) -> Refused:
    return invalid(
        f"group {group.name!r} keeps no results",
        field=field,
        action=f"let it keep them: popmq group update {group.name} --results-keep 1h",
    )


def records(tx: Tx, results: Iterable[tuple[CheckPoint, dict[int, GivenResult]]]) -> tuple[Outgoing, ...]:
    """The records of results, in the order of their request. Call it while the members are leased: it reads their ids.

    `results`: those of each CheckPoint, by member. A message that cannot be read has no id: its result is left out,
    with a line in the log.
    """
    found: dict[int, Outgoing] = {}
    messages, ends = Log(tx.kv), _Ends()
    for ck, members in results:
        places = located(tx.kv, ck, sum([1 << member for member in members]))
        ids = messages.ids(ck.topic_id, [(position, size) for _, _, _, position, size in places])
        for (member, *_), raw in zip(places, ids, strict=True):
            given = members[member]
            if raw is None:
                log.error("a result is not kept: its message in topic %d cannot be read", ck.topic_id)
            else:
                found[given.handle] = ends.record(raw, given.body, given.content_type)
    return tuple([found[handle] for handle in sorted(found)])


class _Ends:
    """Makes the records of one request, whose results have few lengths and content types."""

    def __init__(self) -> None:
        self._bodies: dict[int, bytes] = {0: b""}
        self._kinds: dict[str, tuple[bytes, bytes]] = {"": (b"", NO_TAG)}

    def record(self, raw: bytes, body: bytes, kind: str) -> Outgoing:
        """The record of one result; `raw`: its message id. `kind`: its content type."""
        if len(body) not in self._bodies:
            self._bodies[len(body)] = _BODY + varint(len(body))
        if kind not in self._kinds:
            self._kinds[kind] = _TAG + varint(len(kind)) + kind.encode(), hash8(kind)
        end, tag = self._kinds[kind]
        data = b"".join((_ID, varint(len(raw)), raw, self._bodies[len(body)], body, end))
        return Outgoing(data, tag, (blake2b(raw, digest_size=8).digest(),), raw.decode())


def failed(message_id: str, origin: bytes) -> Outgoing:
    """The record of a message that became a dead letter. `origin`: its field `dead_letter`, encoded."""
    return Outgoing(id_field(message_id) + origin, NO_TAG, (hash8(message_id),), message_id)


def store(tx: Tx, group: Group, found: tuple[Outgoing, ...]) -> None:
    """Stores records, and wakes who waits for them after the commit. Raises Refused if the store has no room."""
    if not found:
        return
    enqueue(tx, ensure_results_topic(tx, group), 0, found)
    tx.state.fresh_results += len(found)
    if tx.resulted is None:
        tx.resulted = set()
    tx.resulted.update([(group.name, record.message_id) for record in found])


def store_failed(tx: Tx, group: Group, found: tuple[Outgoing, ...]) -> None:
    """Stores what dead letters say, if there is room: a dead letter does not fail for want of its result."""
    if tx.room.has(GROW, messages_bytes([len(record.data) for record in found])):
        store(tx, group, found)


def store_given(tx: Tx, command: StoreResults) -> None:
    """Stores results of messages that nobody has to know."""
    group, ends = keeping(tx, command.group), _Ends()
    found = [ends.record(each.message_id.encode(), each.body, each.content_type) for each in command.results]
    store(tx, group, tuple(found))


def forget(tx: Tx, command: ForgetResults) -> None:
    """Forgets results."""
    store_forgotten(tx, keeping(tx, command.group), command.message_ids)


def store_forgotten(tx: Tx, group: Group, message_ids: Iterable[str]) -> None:
    """Stores that these ids have no result."""
    tag = hash8("forgotten")
    found = [Outgoing(id_field(each) + FORGOTTEN, tag, (hash8(each),), each) for each in message_ids]
    store(tx, group, tuple(found))
