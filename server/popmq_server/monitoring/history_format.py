"""The history as bytes, for the file that keeps it across a restart.

    MAGIC (16) │ version (2) │ crc32 of the rest (4) │ zlib: length of names (4) │ names (JSON) │ floats, little-endian

names: {"times": [ms, the oldest first], "topics": [[topic, points]], "pairs": [[group, topic, points]]}. The floats are
those of the broker, the topics, the pairs, each column by column with as many points as there are times; `points` of
them, the newest, count. A point that is missing, because the broker was down, is a gap between two times.
"""

import json
import struct
import sys
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from popmq_server.monitoring.history import (
    BROKER_COLUMNS,
    HOUR_MS,
    PAIR_COLUMNS,
    PAIRS_MAX,
    POINTS,
    SLOTS,
    TOPIC_COLUMNS,
    TOPICS_MAX,
    History,
    Series,
)

#: What a file with a history begins with.
MAGIC = b"PopMQ history\r\n\0"
VERSION = 1
_HEAD = struct.Struct(">16sHI")
_LENGTH = struct.Struct(">I")
#: Names are ASCII of 255 bytes at most, those of dead-letter topics a little longer: a pair takes 600 bytes of JSON.
_NAMES_MAX = 600 * (TOPICS_MAX + PAIRS_MAX) + 4096
#: Bytes of a body before it is packed: more is not a history.
_BYTES_MAX = 4 * POINTS * (64 + TOPICS_MAX * TOPIC_COLUMNS + PAIRS_MAX * PAIR_COLUMNS) + _NAMES_MAX


def is_history(head: bytes) -> bool:
    """Whether a file that begins so has a history, of any version."""
    return head.startswith(MAGIC)


def written(history: History) -> bytes:
    """The bytes of a history; its samples must not change meanwhile."""
    numbers = range(max(0, history.number - POINTS), history.number)
    slots = [number % SLOTS for number in numbers]
    names = {
        "times": [history.times_ms[slot] for slot in slots],
        "topics": [[name, _count(one, numbers)] for name, one in history.topics.items()],
        "pairs": [[*pair, _count(one, numbers)] for pair, one in history.pairs.items()],
    }
    listed = json.dumps(names).encode()
    packing = zlib.compressobj(1)
    parts = [packing.compress(_LENGTH.pack(len(listed)) + listed)]
    kept = (history.broker, *history.topics.values(), *history.pairs.values())
    parts += (packing.compress(_little(_ordered(series, slots)).tobytes()) for series in kept)
    body = b"".join([*parts, packing.flush()])
    return _HEAD.pack(MAGIC, VERSION, zlib.crc32(body)) + body


def _count(series: Series, numbers: range) -> int:
    return min(len(numbers), numbers.stop - series.began)


def _ordered(series: Series, slots: Sequence[int]) -> "array[float]":
    """The columns with the oldest value first."""
    values = series.values
    first = slots[0] if slots else 0
    ordered = array("f")
    for begin in range(0, len(values), SLOTS):
        column = values[begin : begin + SLOTS]
        ordered.extend((column[first:] + column[:first])[: len(slots)])
    return ordered


def _little(values: "array[float]") -> "array[float]":
    if sys.byteorder == "big":
        values.byteswap()
    return values


def read(raw: bytes, now_ms: int) -> History:
    """The history in a file, without points that are over an hour old or of a later time than now.

    Raises ValueError: damaged, or of another version.
    """
    try:
        magic, version, check = _HEAD.unpack_from(raw)
        if magic != MAGIC or version != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        body = raw[_HEAD.size :]
        if zlib.crc32(body) != check:
            raise ValueError("its checksum does not match")
        unpacked = zlib.decompressobj().decompress(body, _BYTES_MAX)
        (length,) = _LENGTH.unpack_from(unpacked)
        names = json.loads(unpacked[_LENGTH.size : _LENGTH.size + length])
        return _filled(names, _series(unpacked[_LENGTH.size + length :], names), now_ms)
    except (struct.error, zlib.error, json.JSONDecodeError, UnicodeDecodeError, LookupError, TypeError) as error:
        raise ValueError(f"it is damaged: {error}") from error


#: What the file names: lists of texts and numbers, as JSON has them.
Names: TypeAlias = Any


def _series(raw: bytes, names: Names) -> Iterator[tuple[Names, "array[float]"]]:
    """(names, values) of the broker, each topic and each pair, whose values are in this order."""
    values = array("f")
    values.frombytes(raw)
    _little(values)
    count, begin = len(names["times"]), 0
    if not count or len(names["topics"]) > TOPICS_MAX or len(names["pairs"]) > PAIRS_MAX:
        raise ValueError("it is damaged: it has no times, or too many names")
    kinds = [(("", 0), TOPIC_COLUMNS + PAIR_COLUMNS + BROKER_COLUMNS)]
    kinds += [(one, TOPIC_COLUMNS) for one in names["topics"]]
    kinds += [(one, PAIR_COLUMNS) for one in names["pairs"]]
    if len(values) != count * sum(columns for _, columns in kinds):
        raise ValueError("it is damaged: values are missing")
    for one, columns in kinds:
        yield one, values[begin : begin + columns * count]
        begin += columns * count


def _filled(names: Names, series: Iterator[tuple[Names, "array[float]"]], now_ms: int) -> History:
    history, times = History(), [int(time_ms) for time_ms in names["times"]]
    first, last = bisect_right(times, now_ms - HOUR_MS), bisect_right(times, now_ms)
    if times != sorted(times) or len(times) > POINTS:
        raise ValueError("it is damaged: its times are not those of an hour")
    history.number = last - first
    history.times_ms[: last - first] = times[first:last]
    _, values = next(series)
    history.broker = _placed(values, len(times), first, last, len(times))
    for _ in names["topics"]:
        (topic, points), values = next(series)
        history.topics[topic] = _placed(values, len(times), first, last, points)
    for _ in names["pairs"]:
        (group, topic, points), values = next(series)
        history.pairs[group, topic] = _placed(values, len(times), first, last, points)
    return history


def _placed(values: "array[float]", count: int, first: int, last: int, points: int) -> Series:
    """A series that has the values from `first` to `last` in its first slots. `count`: values in a column of the file.

    `points`: how many of them, the newest, count.
    """
    columns = len(values) // count if count else 0
    series = Series(columns, max(0, count - points - first))
    for column in range(columns):
        begin, slot = column * count, column * SLOTS
        series.values[slot : slot + last - first] = values[begin + first : begin + last]
    return series
