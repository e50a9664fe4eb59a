"""Search: messages of a topic over all its queues, in the order in which they were stored.

    idx    T + position → ranges of offsets of a chunk      newest first: ◀──   oldest first: ──▶
    lidx   the same for the chunks of a LITE topic's lite topics

A text is searched in the bytes of a whole chunk first, in C: most chunks of a rare text are passed in some microseconds
for each 32 KiB. Only a chunk that has the text is read record by record, and only such a record field by field.

A piece ends after PIECE_BYTES or PIECE_CHUNKS, or when the page is full; `Found.at` is the position to go on at. No
state in memory is read, so a piece may run in any thread (loop/aside.py). What was dropped or redriven is left out.
"""

from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.contract.commands import ReadRow
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.topics import index
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE
from popmq_server.embedded.rules.topics.log import Log
from popmq_server.embedded.store.keys import (
    CQ_ENTRY,
    CQ_KEY,
    TOPIC_AT,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import UnreadableRow
from popmq_server.values import fields

#: Limits of one piece: a millisecond or two of a processor.
PIECE_BYTES = 1 << 20
PIECE_CHUNKS = 64
#: Records of a chunk with the text that one piece decodes; one chunk is always finished.
PIECE_RECORDS = 500

#: The position of a search that has looked at everything.
END = -1
#: A position after all others.
_LAST = 1 << 62

_SEARCHED = frozenset(
    (
        *(fields.MESSAGE_ID, fields.BODY, fields.TAG, fields.KEYS, fields.PROPERTIES),
        *(fields.MESSAGE_GROUP, fields.LITE_TOPIC, fields.DEAD_LETTER),
    )
)


class Scope(NamedTuple):
    """Where a search looks. `lite`: in the lite topics of this topic. `from_ms`, `until_ms`: 0 = no bound."""

    topic_id: int
    lite: bool
    text: bytes
    newest: bool
    from_ms: int = 0
    until_ms: int = 0


class FoundPiece(NamedTuple):
    """The answer of a piece. `at`: where the next one goes on, or END. `full`: the page has no room for more."""

    rows: list[ReadRow]
    looked_at: int
    at: int
    full: bool = False


class _Chunk(NamedTuple):
    topic_id: int
    position: int
    bytes: int
    last_ms: int
    ranges: list[tuple[int, int, int]]  # (queue, first offset, count)

    @property
    def messages(self) -> int:
        return sum(count for _, _, count in self.ranges)


def begin(kv: Transaction, scope: Scope) -> int:
    """The position at which a search begins."""
    if scope.newest:
        return index.before(kv, scope.topic_id, scope.until_ms) if scope.until_ms and not scope.lite else _LAST
    if not scope.from_ms or scope.lite:
        return 0
    before = index.before(kv, scope.topic_id, scope.from_ms - 1)
    chunk = kv.floor("idx", TOPIC_AT.pack(scope.topic_id, max(0, before - 1)), U32.pack(scope.topic_id))
    return 0 if chunk is None else int(TOPIC_AT.unpack(chunk[0])[1])


class SearchPiece:
    """A piece of a search: what was found, and the bounds that are left. `some`: the page has messages already."""

    def __init__(self, kv: Transaction, scope: Scope, messages_max: int, bytes_max: int, some: bool) -> None:
        self._kv = kv
        self._log = Log(kv)
        self._scope = scope
        self._messages_left = messages_max
        self._bytes_left = bytes_max
        self._some = some
        self._rows: list[ReadRow] = []
        self._looked_at = 0
        self._records_left = PIECE_RECORDS

    def run(self, at: int) -> FoundPiece:
        """Searches from a position on: below it if the newest come first."""
        scope, left = self._scope, PIECE_BYTES
        for number, chunk in enumerate(_chunks(self._kv, scope, at)):
            if scope.newest and not scope.lite and chunk.last_ms < scope.from_ms:
                break
            if left <= 0 or number == PIECE_CHUNKS or self._records_left <= 0:
                return self._found(at)
            left -= chunk.bytes
            if _may_have(self._kv, chunk, scope.text):
                at, full = self._chunk(chunk, at)
                if full:
                    return self._found(at, full=True)
            else:
                self._looked_at += chunk.messages
            at = chunk.position if scope.newest else chunk.position + chunk.bytes
        return self._found(END)

    def _found(self, at: int, full: bool = False) -> FoundPiece:
        return FoundPiece(self._rows, self._looked_at, at, full)

    def _chunk(self, chunk: _Chunk, at: int) -> tuple[int, bool]:
        """Looks at each message of a chunk; (where to go on, whether the page is full)."""
        for position, size, queue, offset in _entries(self._kv, chunk, self._scope.newest, at):
            row = self._row(chunk.topic_id, position, size, queue, offset)
            if row is not None:
                if not self._messages_left or (self._some and size > self._bytes_left):
                    return at, True
                self._rows.append(row)
                self._some, self._messages_left, self._bytes_left = (
                    True,
                    self._messages_left - 1,
                    self._bytes_left - size,
                )
            self._looked_at, self._records_left = self._looked_at + 1, self._records_left - 1
            at = position if self._scope.newest else position + size
        return at, False

    def _row(self, topic_id: int, position: int, size: int, queue: int, offset: int) -> ReadRow | None:
        """A message as a row, if it is wanted and readable."""
        scope, read = self._scope, self._log.fetch(topic_id, position, size)
        if read is None or (scope.text and not _has(read[1], scope.text)):
            return None
        if read[0] < scope.from_ms or (scope.until_ms and read[0] > scope.until_ms):
            return None
        if deadletter.is_gone(self._kv, topic_id, queue, offset):
            return None
        return read[1], read[0], queue, offset, 0


def _chunks(kv: Transaction, scope: Scope, at: int) -> Iterator[_Chunk]:
    """The chunks below a position, the newest first, or from the one with the position on."""
    name, prefix = ("lidx", U32.pack(scope.topic_id)) if scope.lite else ("idx", U32.pack(scope.topic_id))
    found = kv.floor(name, TOPIC_AT.pack(scope.topic_id, max(0, at - 1 if scope.newest else at)), prefix)
    if found is None and not scope.newest:
        found = kv.first(name, prefix)
    cursor = kv.cursor(name)
    more = found is not None and cursor.set_key(found[0])
    while more and (key := bytes(cursor.key())).startswith(prefix):
        chunk = _chunk(kv, scope, key, cursor.value())
        if chunk is not None and (scope.newest or chunk.position + chunk.bytes > at):
            yield chunk
        more = cursor.prev() if scope.newest else cursor.next()


def _chunk(kv: Transaction, scope: Scope, key: bytes, value: bytes | memoryview) -> _Chunk | None:
    """The chunk of a row of `idx`, or of `lidx`; None if it is not there or its index is damaged."""
    topic_id, position = TOPIC_AT.unpack(key)
    try:
        if scope.lite:
            topic_id = U32.unpack(kv.value_of("lidx", key, value))[0]
            found = kv.get("idx", TOPIC_AT.pack(topic_id, position))
            if found is None:
                return None
            raw = found
        else:
            raw = kv.value_of("idx", key, value)
    except UnreadableRow:
        return None
    last_ms, size, count = IDX_HEAD.unpack_from(raw)
    ranges = list(IDX_RANGE.iter_unpack(raw[IDX_HEAD.size : IDX_HEAD.size + count * IDX_RANGE.size]))
    return _Chunk(topic_id, position, size, last_ms, ranges)


def _may_have(kv: Transaction, chunk: _Chunk, text: bytes) -> bool:
    if not text:
        return True
    raw = kv.get("log", U64.pack(chunk.position))
    return raw is not None and text in bytes(raw)


def _entries(kv: Transaction, chunk: _Chunk, newest: bool, at: int) -> list[tuple[int, int, int, int]]:
    """(position, size, queue, offset) of the messages of a chunk below the position `at`, or from it on."""
    found: list[tuple[int, int, int, int]] = []
    for queue, first, _ in chunk.ranges:
        try:
            raw = kv.get("cq", CQ_KEY.pack(chunk.topic_id, queue, first))
        except UnreadableRow:
            continue
        units = enumerate(CQ_ENTRY.iter_unpack(raw or b""))
        found += [(position, size, queue, first + number) for number, (position, size, _) in units]
    wanted = [each for each in found if (each[0] < at if newest else each[0] >= at)]
    return sorted(wanted, reverse=newest)


def _has(data: bytes, text: bytes) -> bool:
    """Whether one of the searched fields of a message has the text."""
    if text not in data:
        return False
    return any(
        number in _SEARCHED and data.find(text, end - length, end) >= 0
        for number, length, _, end in fields.fields(data)
    )
