"""Storage of history rows: rows of neighbouring messages share a block and take some twenty bytes each.

    hist   T + Q + offset + ck_id + sub of the first row → a block:
           version [1] · crc32 of the rest [4] · span [2] · ended ms of the first row [8] · bytes of texts [2],
           texts, rows                     version 2 if any row is sparse, else 1

           rows     ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪ ◀── the next row at or after `first` is appended, up to BLOCK_BYTES_MAX
           offsets  │ first …                │ first + span: the end of the last offset that a row covers

A row alone would take 24 bytes of key, 10 of LMDB, the client's name and the unused rest of its page: 150 bytes for a
message that is popped and acked alone. A block stores its numbers as differences to those of the first row, in 7 bits
a byte, and each text (client, reason) once. A block of more than half a page has a page of its own, which it fills.

The row of a sparse run (checkpoint.py) has a bit for each offset that it covers, as many as were popped by turns of
fair keys: one row for each queue, not one for each message.

A value that begins with 0 is a single row of format 1 or 2: their first field was a group id below 2^24.

See docs/decisions/0007-history-by-queue.md.
"""

import contextlib
import itertools
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from popmq_server.embedded.store.keys import HIST_KEY, QUEUE_KEY
from popmq_server.embedded.store.lmdb import Transaction

#: The value that fits one overflow page of LMDB: 4,096 bytes without its 16.
BLOCK_BYTES_MAX = 4080
#: The rows of a block begin at most this far after its first offset, so readers go back this far and a row's length.
SPAN_MAX = 4096
#: A block's first byte; that of a block with sparse rows.
_BLOCK, _SPARSE_BLOCK = 1, 2
_CHECK = struct.Struct(">BI")  # version, crc32
_HEAD = struct.Struct(">HQH")  # span, ended ms of the first row, bytes of texts

#: Formats 1 and 2. G, how, popped ms, due ms, ended ms, count; then done bits, then client, NUL, reason.
_OLD_HEAD = struct.Struct(">IBQQQH")
#: Rows whose `how` has this bit have four more fields after the head: attempt, renewals, renewed ms, back ms.
_OLD_MORE = struct.Struct(">HHQQ")
_OLD_HAS_MORE = 0x80

#: The first number of a row: how the lease ended, and flags of the optional numbers.
_HOW = 0x07
_HAS_SUB, _HAS_POP, _HAS_DUE, _HAS_RENEWALS, _HAS_BACK, _IS_SPARSE = 0x08, 0x10, 0x20, 0x40, 0x80, 0x100
#: The last number of a row: which members were done.
_NONE_DONE, _ALL_DONE, _SOME_DONE = 0, 1, 2


class HistoryRow(NamedTuple):
    """One row. `done`: a bit for each of `length` offsets from `first` on; the others ended by `how`.

    `covers`: 0, or the bits of the offsets that a sparse row is of.

    `popped_ms` 0: the message was under no lease. `due_ms`: the lease's last deadline, 0 when its owner had it.
    `attempt` 0: a row of an older store. `renewed_ms`: time of the last renewal. `back_ms`: end of a release's delay.
    """

    group_id: int
    first: int
    length: int
    ck_id: int
    sub: int
    how: int
    popped_ms: int
    due_ms: int
    ended_ms: int
    done: int
    client: str
    reason: str
    attempt: int = 0
    renewals: int = 0
    renewed_ms: int = 0
    back_ms: int = 0
    covers: int = 0

    @property
    def stop(self) -> int:
        """The offset after the last one that it covers."""
        return self.first + self.length

    @property
    def every(self) -> int:
        """The bits of all offsets that it covers."""
        return self.covers or (1 << self.length) - 1

    def has(self, offset: int) -> bool:
        """Whether it covers an offset."""
        return self.first <= offset and bool(self.every >> offset - self.first & 1)


def add(kv: Transaction, topic_id: int, queue: int, row: HistoryRow) -> None:
    """Appends a row to the block at or before its offset, or begins a new block with it."""
    key = HIST_KEY.pack(topic_id, queue, row.first, row.ck_id, row.sub)
    last = HIST_KEY.pack(topic_id, queue, row.first, (1 << 64) - 1, (1 << 16) - 1)
    found = kv.floor("hist", last, QUEUE_KEY.pack(topic_id, queue))
    if found is not None and row.first - HIST_KEY.unpack(found[0])[2] <= SPAN_MAX:
        try:
            longer = _longer(found[0], _opened(bytes(found[1])), row, found[1][0])
        except ValueError:  # a row of an older format, or a damaged block: `popmq check` reports it
            longer = b""
        if longer and (len(longer) <= BLOCK_BYTES_MAX or found[0] == key):
            kv.put("hist", found[0], longer)
            return
    kv.put("hist", key, _longer(key, _HEAD.pack(0, row.ended_ms, 0), row))


def add_all(kv: Transaction, topic_id: int, queue: int, rows: list[HistoryRow]) -> None:
    """Appends rows of ascending offsets, as `add` of each would: one read and one put for those of the same block."""
    at = 0
    while at < len(rows):
        row, prefix = rows[at], QUEUE_KEY.pack(topic_id, queue)
        key = HIST_KEY.pack(topic_id, queue, row.first, row.ck_id, row.sub)
        last = HIST_KEY.pack(topic_id, queue, row.first, (1 << 64) - 1, (1 << 16) - 1)
        found = kv.floor("hist", last, prefix)
        if found is not None and row.first - HIST_KEY.unpack(found[0])[2] <= SPAN_MAX:
            with contextlib.suppress(ValueError):
                block = _Block(found[0], _opened(bytes(found[1])), found[1][0])
                if block.append(row, always=found[0] == key):
                    at = _fill(kv, prefix, block, rows, at + 1)
                    continue
        block = _Block(key, _HEAD.pack(0, row.ended_ms, 0))
        block.append(row, always=True)
        at = _fill(kv, prefix, block, rows, at + 1)


def _fill(kv: Transaction, prefix: bytes, block: "_Block", rows: list[HistoryRow], at: int) -> int:
    """Appends further rows, from `at` on, that belong to a block, and puts it; returns the index of the next row."""
    after = next(kv.scan_keys("hist", prefix, block.key + b"\0"), None)
    stop = min(block.first + SPAN_MAX + 1, HIST_KEY.unpack(after)[2] if after is not None else 1 << 64)
    while at < len(rows) and rows[at].first < stop and block.append(rows[at]):
        at += 1
    kv.put("hist", block.key, block.raw)
    return at


class _Block:
    """A block to which rows are appended."""

    def __init__(self, key: bytes, body: bytes, version: int = _BLOCK) -> None:
        """`body`: without its checksum."""
        self.key, self._version = key, version
        _, _, self.first, self._ck_id, _ = HIST_KEY.unpack(key)
        self._span, self._base_ms, size = _HEAD.unpack_from(body)
        self._texts, self._rows = body[_HEAD.size : _HEAD.size + size], [body[_HEAD.size + size :]]
        self._known = _texts(self._texts)
        self._bytes = _CHECK.size + len(body)
        #: Of the last row: its fields without the offset, and its bytes before and after the offset.
        self._last: tuple[object, ...] = ()
        self._before = self._after = b""

    def append(self, row: HistoryRow, *, always: bool = False) -> bool:
        """Appends a row; False if it does not fit: the block is then unchanged."""
        if (fields := (row[0], *row[2:])) != self._last:
            return self._append_other(row, fields, always)
        place = row[1] - self.first
        packed = self._before + (bytes((place,)) if place < 0x80 else _packed((place,))) + self._after
        if self._bytes + len(packed) > BLOCK_BYTES_MAX and not always:
            return False
        self._rows.append(packed)
        self._bytes += len(packed)
        self._span = max(self._span, place + row[2])
        return True

    def _append_other(self, row: HistoryRow, fields: tuple[object, ...], always: bool) -> bool:
        """Appends a row that differs from the last one in more than its offset."""
        known, texts = self._known, self._texts
        if new := [text for text in {row.client: None, row.reason: None} if text not in known]:
            known = known + new
            for raw in (text.encode() for text in new):
                texts += _packed((len(raw),)) + raw
        numbers = [known.index(row.client), known.index(row.reason)]
        before, after = _parts(row, self._ck_id, self._base_ms, numbers)
        packed = before + _packed((row.first - self.first,)) + after
        size = self._bytes + len(texts) - len(self._texts) + len(packed)
        if size > BLOCK_BYTES_MAX and not always:
            return False
        self._known, self._texts, self._bytes = known, texts, size
        self._last, self._before, self._after = fields, before, after
        self._version = _SPARSE_BLOCK if row.covers else self._version
        self._rows.append(packed)
        self._span = max(self._span, row.stop - self.first)
        return True

    @property
    def raw(self) -> bytes:
        """The value, with its checksum."""
        head = _HEAD.pack(self._span, self._base_ms, len(self._texts))
        body = b"".join((head, self._texts, *self._rows))
        return _CHECK.pack(self._version, zlib.crc32(body)) + body


def _opened(raw: bytes) -> bytes:
    """A block without its checksum. Raises ValueError when the value is damaged or is not a block."""
    if raw[0] not in (_BLOCK, _SPARSE_BLOCK) or len(raw) < _CHECK.size + _HEAD.size:
        raise ValueError("not a block of history")
    body = raw[_CHECK.size :]
    if zlib.crc32(body) != _CHECK.unpack_from(raw)[1]:
        raise ValueError("the block does not match its checksum")
    return body


def _longer(key: bytes, block: bytes, row: HistoryRow, version: int = _BLOCK) -> bytes:
    """Appends a row to a block without its checksum; returns the block with one."""
    span, base_ms, size = _HEAD.unpack_from(block)
    _, _, first, ck_id, _ = HIST_KEY.unpack(key)
    texts, rows = block[_HEAD.size : _HEAD.size + size], block[_HEAD.size + size :]
    known = _texts(texts)
    numbers = []
    for text in (row.client, row.reason):
        if text not in known:
            known.append(text)
            raw = text.encode()
            texts += _packed((len(raw),)) + raw
        numbers.append(known.index(text))
    head = _HEAD.pack(max(span, row.stop - first), base_ms, len(texts))
    before, after = _parts(row, ck_id, base_ms, numbers)
    body = b"".join((head, texts, rows, before, _packed((row.first - first,)), after))
    return _CHECK.pack(_SPARSE_BLOCK if row.covers else version, zlib.crc32(body)) + body


def _parts(row: HistoryRow, ck_id: int, base_ms: int, texts: list[int]) -> tuple[bytes, bytes]:
    """Encodes a row for a block whose first row has this CheckPoint and time: what comes before its offset and after.

    The rows of a batch of messages that are not neighbours differ in their offsets only.
    """
    flags, more = row.how, list[int]()
    if row.sub:
        flags |= _HAS_SUB
        more.append(row.sub)
    if row.popped_ms:
        flags |= _HAS_POP
        more.append(_signed(row.ended_ms - row.popped_ms))
    if row.due_ms:
        flags |= _HAS_DUE
        more.append(_signed(row.due_ms - row.ended_ms))
    if row.renewals:
        flags |= _HAS_RENEWALS
        more += (row.renewals, _signed(row.ended_ms - row.renewed_ms))
    if row.back_ms:
        flags |= _HAS_BACK
        more.append(_signed(row.back_ms - row.ended_ms))
    every, width = row.every, (row.length + 7) // 8
    done = _ALL_DONE if row.done == every else _SOME_DONE if row.done else _NONE_DONE
    times = _signed(row.ck_id - ck_id), _signed(row.ended_ms - base_ms)
    after = _packed((row.length, *times, row.attempt, *texts, *more, done))
    bits = row.done.to_bytes(width, "little") if done == _SOME_DONE else b""
    if row.covers:
        flags |= _IS_SPARSE
        bits += row.covers.to_bytes(width, "little")
    return _packed((flags, row.group_id)), after + bits


def _packed(numbers: Sequence[int]) -> bytes:
    """Encodes numbers in seven bits a byte, the lowest first; the eighth bit is set when more bytes follow."""
    if max(numbers) <= 0x7F:
        return bytes(numbers)
    found = bytearray()
    for number in numbers:
        while number > 0x7F:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
    return bytes(found)


def _signed(number: int) -> int:
    """Maps a signed number to an unsigned one; the lowest bit is the sign."""
    return number << 1 if number >= 0 else -number << 1 | 1


def _unsigned(number: int) -> int:
    return -(number >> 1) if number & 1 else number >> 1


def stop_of(key: bytes, raw: memoryview | bytes) -> int:
    """The offset after the last one that a stored value covers."""
    first = int(HIST_KEY.unpack(key)[2])
    if raw[0] == 0:
        return first + int(_OLD_HEAD.unpack_from(raw)[5])
    return first + int(_HEAD.unpack_from(raw, _CHECK.size)[0])


def read(key: bytes, raw: memoryview | bytes) -> list[HistoryRow]:
    """The rows of a stored value, in the order in which they were added. Raises ValueError when it is damaged."""
    return [_old_row(key, raw)] if raw[0] == 0 else list(_rows(key, _opened(bytes(raw))))


def _readable(key: bytes, raw: memoryview) -> list[HistoryRow]:
    """The rows of a stored value; none of a damaged one, so that callers still get the rows of other values."""
    try:
        return read(key, raw)
    except ValueError:
        return []


def _rows(key: bytes, raw: bytes) -> Iterator[HistoryRow]:
    _, base_ms, size = _HEAD.unpack_from(raw)
    _, _, first, ck_id, _ = HIST_KEY.unpack(key)
    at = _HEAD.size + size
    texts, numbers = _texts(raw[_HEAD.size : at]), _Numbers(raw, at)
    while numbers.at < len(raw):
        flags, group_id, place, length = (numbers.next() for _ in range(4))
        ck = ck_id + _unsigned(numbers.next())
        ended_ms = base_ms + _unsigned(numbers.next())
        attempt, client, reason = (numbers.next() for _ in range(3))
        sub = numbers.next() if flags & _HAS_SUB else 0
        popped_ms = ended_ms - _unsigned(numbers.next()) if flags & _HAS_POP else 0
        due_ms = ended_ms + _unsigned(numbers.next()) if flags & _HAS_DUE else 0
        renewals = numbers.next() if flags & _HAS_RENEWALS else 0
        renewed_ms = ended_ms - _unsigned(numbers.next()) if flags & _HAS_RENEWALS else 0
        back_ms = ended_ms + _unsigned(numbers.next()) if flags & _HAS_BACK else 0
        done, covers = numbers.done(length, bool(flags & _IS_SPARSE))
        head = group_id, first + place, length, ck, sub, flags & _HOW, popped_ms, due_ms, ended_ms, done
        yield HistoryRow(*head, texts[client], texts[reason], attempt, renewals, renewed_ms, back_ms, covers)


class _Numbers:
    """Decodes the numbers that `_packed` encoded."""

    __slots__ = ("_raw", "at")

    def __init__(self, raw: bytes, at: int) -> None:
        self._raw = raw
        self.at = at

    def next(self) -> int:
        number = shift = 0
        while (byte := self._raw[self.at]) > 0x7F:
            number |= (byte & 0x7F) << shift
            shift += 7
            self.at += 1
        self.at += 1
        return number | byte << shift

    def done(self, length: int, is_sparse: bool) -> tuple[int, int]:
        """Decodes the bits of the done offsets, of `length` offsets, and of those that a sparse row covers, else 0."""
        how = self.next()
        some = self._bits(length) if how == _SOME_DONE else 0
        covers = self._bits(length) if is_sparse else 0
        return (covers or (1 << length) - 1) if how == _ALL_DONE else some, covers

    def _bits(self, length: int) -> int:
        start, self.at = self.at, self.at + (length + 7) // 8
        return int.from_bytes(self._raw[start : self.at], "little")


def _texts(raw: bytes) -> list[str]:
    """The texts of a block, each stored after its length; text 0 is the empty one, which is not stored."""
    found, numbers = [""], _Numbers(raw, 0)
    while numbers.at < len(raw):
        size = numbers.next()
        found.append(raw[numbers.at : numbers.at + size].decode())
        numbers.at += size
    return found


def _old_row(key: bytes, raw: memoryview | bytes) -> HistoryRow:
    _, _, first, ck_id, sub = HIST_KEY.unpack(key)
    group_id, how, popped_ms, due_ms, ended_ms, count = _OLD_HEAD.unpack_from(raw)
    more, start = (0, 0, 0, 0), _OLD_HEAD.size
    if how & _OLD_HAS_MORE:
        more, start = _OLD_MORE.unpack_from(raw, start), start + _OLD_MORE.size
    stop = start + (count + 7) // 8
    done = int.from_bytes(raw[start:stop], "little")
    client, _, reason = bytes(raw[stop:]).decode().partition("\0")
    head = group_id, first, count, ck_id, sub, how & ~_OLD_HAS_MORE, popped_ms, due_ms, ended_ms, done
    return HistoryRow(*head, client, reason, *more)


def forget(kv: Transaction, first: bytes, stop: bytes, blocks_max: int, least: int) -> None:
    """Removes blocks of a queue between two keys, at most `blocks_max`; those that cover offset `least` stay."""
    stale: list[bytes] = []
    for key, value in kv.scan("hist", first[: QUEUE_KEY.size], first):
        if key >= stop or len(stale) == blocks_max:
            break
        if stop_of(key, value) <= least:
            stale.append(key)
    for key in stale:
        kv.delete("hist", key)


def of_message(kv: Transaction, topic_id: int, queue: int, offset: int, reach: int, rows_max: int) -> list[HistoryRow]:
    """The rows that cover a message; `reach`: how many offsets a row covers at most.

    Scans the blocks that begin at most `reach` + SPAN_MAX before the message and decodes those that reach it. Of rows
    that were written twice the last one counts. Stops after `rows_max` rows and blocks.
    """
    start = HIST_KEY.pack(topic_id, queue, max(0, offset - reach - SPAN_MAX), 0, 0)
    stop = HIST_KEY.pack(topic_id, queue, offset + 1, 0, 0)
    found: dict[tuple[int, int, int], HistoryRow] = {}
    seen = 0
    for key, value in itertools.takewhile(lambda pair: pair[0] < stop, kv.scan("hist", stop[:6], start)):
        if seen >= rows_max:
            break
        seen += 1
        if stop_of(key, value) > offset:
            rows = _readable(key, value)
            seen += len(rows)
            found |= {(row.first, row.ck_id, row.sub): row for row in rows if row.has(offset)}
    return [found[place] for place in sorted(found)]
