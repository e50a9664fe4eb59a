"""Pieces of lists by name: topics, groups, and the groups of each topic. One piece takes LOOKS_MAX steps at most.

    name    "t" + topic, "g" + group        sorted; lists continue at a name, so a new or removed name shifts no page

The store has names in order; memory says which of them still exist. Topics and groups that the running commit batch
creates are not in the store yet, and no caller knows of them.
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.rules.pulling.offsets import retry_topic
from popmq_server.embedded.rules.topics import readers, registry
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32
from popmq_server.errors import group_not_found, not_a_page, topic_not_found
from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.records import Group, Topic

#: Names and pairs that one piece visits: some milliseconds. A row of numbers costs more than one step.
LOOKS_MAX = 2000


class StepsLeft:
    """The steps that a piece may still make."""

    def __init__(self) -> None:
        self.left = LOOKS_MAX

    def take(self, steps: int = 1) -> bool:
        """Whether one more step may be made; the first always may."""
        fits = self.left > 0
        self.left -= steps
        return fits


def names(tx: Tx, kind: bytes, after: str) -> Iterator[tuple[str, int]]:
    """(name, id) of the topics (b"t") or groups (b"g") after a name, sorted."""
    start = kind + after.encode() + b"\0" if after else kind
    for key, value in tx.kv.scan("name", kind, start):
        yield key[1:].decode(), U32.unpack(value)[0]


def topics(tx: Tx, after: str) -> Iterator[Topic]:
    """The topics after a name, sorted by name; no lite topics."""
    for _, topic_id in names(tx, b"t", after):
        if (topic := tx.state.topics.get(topic_id)) is not None:
            yield topic


def groups(tx: Tx, after: str) -> Iterator[Group]:
    """The groups after a name, sorted by name."""
    for _, group_id in names(tx, b"g", after):
        if (group := tx.state.groups.get(group_id)) is not None:
            yield group


class NamedPair(NamedTuple):
    """A group and a topic that it has named. `after`: where a list continues after the pair."""

    group: Group
    topic: Topic
    after: str


def pairs(tx: Tx, topic_name: str, group_name: str, after: str) -> Iterator[NamedPair | str]:
    """The pairs of a topic and a group, or of all with an empty name; by topic.

    With both names it is that pair, also when the group has not named the topic yet. Steps that find nothing yield the
    place where the list continues after them. Raises Refused for names that do not exist. A retry topic has one pair:
    its group and its topic.
    """
    if topic_name.startswith(RETRY_PREFIX):
        group, topic = retry_topic(tx, topic_name)
        has_named = (group.group_id, topic.topic_id) in tx.state.stat
        if group_name == group.name or (has_named and not group_name):
            yield NamedPair(group, topic, "")
        return
    named_topic, named_group = registry.topic(tx, topic_name), readers.group(tx, group_name)
    if topic_name and named_topic is None:
        raise topic_not_found(topic_name)
    if group_name and named_group is None:
        raise group_not_found(group_name)
    last = _Place.of(after)
    if named_topic is not None:
        yield from _pairs_of(tx, named_topic, named_group, last.group_id, alone=True)
        return
    if last.topic and (begun := registry.topic(tx, last.topic)) is not None:
        yield from _pairs_of(tx, begun, named_group, last.group_id)
    for topic in topics(tx, last.topic):
        yield from _pairs_of(tx, topic, named_group, 0)
        yield _Place(topic.name, NEXT_TOPIC).text


#: Greater than every id of a group: the list continues with the next topic.
NEXT_TOPIC = 1 << 32


class _Place(NamedTuple):
    """The last topic and the id of the last of its groups that were listed; ("", 0): none."""

    topic: str
    group_id: int

    @classmethod
    def of(cls, after: str) -> "_Place":
        group_id, _, topic = after.partition(" ")
        if after and not (group_id.isascii() and group_id.isdecimal() and len(group_id) <= len(str(NEXT_TOPIC))):
            raise not_a_page(after)
        return cls(topic, int(group_id or 0))

    @property
    def text(self) -> str:
        return f"{self.group_id} {self.topic}"


def _pairs_of(
    tx: Tx, topic: Topic, named: Group | None, last_id: int, alone: bool = False
) -> Iterator[NamedPair | str]:
    """The pairs of one topic whose group has an id greater than `last_id`. `alone`: of no other topic."""
    readers = tx.state.topic_groups.get(topic.topic_id, ())
    if named is not None:
        if (alone or named.group_id in readers) and named.group_id > last_id:
            yield NamedPair(named, topic, _Place(topic.name, named.group_id).text)
        return
    for group_id in sorted(readers) if not last_id else sorted(filter(last_id.__lt__, readers)):
        group, after = tx.state.groups.get(group_id), _Place(topic.name, group_id).text
        yield after if group is None else NamedPair(group, topic, after)
