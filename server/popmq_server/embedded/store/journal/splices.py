"""The difference between two values of a row, where most bytes stay.

    before   head ▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪▪ checksum
    after    head ▪▪▪▪▪▪▪▪ new ▪▪▪▪▪▪▪▪▪▪▪▪▪▪ checksum

A lone send puts its whole open chunk again, with some bytes more (decision 0002), a queue's entries, and the sorted
names of its index block; an ack puts a block of history. Heads have times, counts and checksums, which change.

    splice   first byte that stays [4] · end of these bytes [4] · how many before the last ones stay [4] ·
             how many last ones do not [1] │ head, new bytes, last bytes
"""

import struct

#: Bytes at the begin of a value that a splice always has.
_FIRST_BYTES = 32
#: The begin of a splice, and its length.
HEAD = struct.Struct(">IIIB")
HEAD_BYTES = HEAD.size


def splice(before: bytes, after: bytes, last: int) -> bytes | None:
    """The splice that makes `after` of `before`; None if it would not be shorter. The `last` bytes never stay."""
    before_stop, after_stop = len(before) - last, len(after) - last
    most = min(before_stop, after_stop)
    if most <= 0:
        return None
    if after.startswith(before[:before_stop]):
        return HEAD.pack(0, before_stop, 0, last) + after[before_stop:]
    if most <= _FIRST_BYTES:
        return None
    end = _same(before, after, _FIRST_BYTES, most)
    stay = _same_last(before[end:before_stop], after[end:after_stop])
    if end - _FIRST_BYTES + stay <= HEAD_BYTES:
        return None
    new = after[end : after_stop - stay], after[after_stop:]
    return b"".join((HEAD.pack(_FIRST_BYTES, end, stay, last), after[:_FIRST_BYTES], *new))


def whole(before: bytes, splice: bytes) -> bytes | None:
    """The value that a splice makes; None if the value before is too short to be the one that it was made of."""
    start, end, stay, last = HEAD.unpack_from(splice)
    if len(before) < end + stay + last:
        return None
    new = splice[HEAD_BYTES:]
    stop = len(before) - last
    parts = new[:start], before[start:end], new[start : len(new) - last], before[stop - stay : stop]
    return b"".join((*parts, new[len(new) - last :]))


def _same(one: bytes, other: bytes, start: int, stop: int) -> int:
    """Where two values begin to differ, from `start` on; `stop`: nowhere before it. Compared in halves, by C."""
    while start < stop:
        middle = (start + stop + 1) // 2
        if one[start:middle] == other[start:middle]:
            start = middle
        else:
            stop = middle - 1
    return start


def _same_last(one: bytes, other: bytes) -> int:
    """How many last bytes of two values are the same."""
    end, other_end = len(one), len(other)
    least, most = 0, min(end, other_end)
    while least < most:
        middle = (least + most + 1) // 2
        if one[end - middle : end - least] == other[other_end - middle : other_end - least]:
            least = middle
        else:
            most = middle - 1
    return least
