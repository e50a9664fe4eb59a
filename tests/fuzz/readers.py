"""The store's readers: damaged pages of a data file, and damaged rows.

pages   edits of a sound data file: place (4 bytes), length (1 byte), the bytes; again and again
rows    the first byte chooses a format, then the bytes of a row
"""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.store import checkpoint, history_rows
from popmq_server.embedded.store.datafile.walk import check_free_list, faults, rescue
from popmq_server.embedded.store.keys import HIST_KEY, NEVER, U32
from popmq_server.embedded.store.row_formats import RowReader
from popmq_server.errors import StartError
from popmq_server.values import fields, message, outgoing
from popmq_server.values.ids import GroupId, TopicId
from tests.engine.traffic.data_files import PAGE, Image
from tests.fuzz.target import Running

TOPIC_ID, GROUP_ID = TopicId(7), GroupId(2)
_EDIT = struct.Struct(">IB")


@contextmanager
def pages() -> Iterator[Running]:
    """The walk and the rescue end, with sentences and entries, whatever is in the pages."""
    with tempfile.TemporaryDirectory() as folder:
        sound = Image(Path(folder)).file.read_bytes()
    handle = os.memfd_create("pages")
    os.pwrite(handle, sound, 0)

    def run(raw: bytes) -> None:
        edits = list(_edits(raw, len(sound)))
        for place, new in edits:
            os.pwrite(handle, new, place)
        try:
            found = list(faults(handle, PAGE))
            assert all(isinstance(sentence, str) for sentence in (check_free_list(handle, PAGE), *found))
            for entry in rescue(handle, PAGE):
                assert isinstance(entry, str) or len(entry) == 3
        finally:
            for place, new in edits:
                os.pwrite(handle, sound[place : place + len(new)], place)

    seeds = [_EDIT.pack(place, 1) + b"\xff" for place in range(0, len(sound), 997)]
    yield Running(run, seeds[:40])
    os.close(handle)


def _edits(raw: bytes, size: int) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at + _EDIT.size < len(raw):
        place, length = _EDIT.unpack_from(raw, at)
        at += _EDIT.size
        new, place = raw[at : at + length], place % size
        yield place, new[: size - place]
        at += length


@contextmanager
def rows() -> Iterator[Running]:
    """A damaged row is one of the errors that its reader turns into a sentence, never another one."""
    formats: list[Callable[[bytes], Any]] = [
        _record,
        lambda raw: checkpoint.decode(1, memoryview(raw)),
        lambda raw: checkpoint.decode_lease(5, 0, memoryview(raw), 9),
        lambda raw: checkpoint.decode_lease(NEVER, 0, memoryview(raw), 9),
        lambda raw: history_rows.read(HIST_KEY.pack(TOPIC_ID, 0, 0, 1, 0), raw),
        outgoing.unpack_message,
        fields.outgoing,
    ]

    def run(raw: bytes) -> None:
        if not raw:
            return
        try:
            formats[raw[0] % len(formats)](raw[1:])
        except (*RowReader.ERRORS, StartError, BrokenInvariant):
            pass

    yield Running(run, [bytes([kind]) + raw for kind, found in enumerate(_sound_rows()) for raw in found])


def _record(raw: bytes) -> None:
    """A damaged record is nothing; one whose sum is right is a message of this topic."""
    read = message.read_record(memoryview(raw), TOPIC_ID)
    if read is not None:
        assert raw.endswith(read[1])
        assert b"".join(message.record(TOPIC_ID, *read)) == raw


def _sound_rows() -> list[list[bytes]]:
    data = pb.Message(message_id="m", body=b"b" * 40, tag="t", keys=["k"], properties={"a": "5"}).SerializeToString()
    ck = checkpoint.CheckPoint(
        ck_id=1,
        group_id=GROUP_ID,
        topic_id=TOPIC_ID,
        kind=0,
        nonce=3,
        popped_ms=4,
        runs=(),
        members=0,
        chunks=(),
        client="c",
    )
    fifo = checkpoint.CheckPoint(
        ck_id=1,
        group_id=GROUP_ID,
        topic_id=TOPIC_ID,
        kind=0,
        nonce=3,
        popped_ms=4,
        runs=(checkpoint.Run(*[0] * len(checkpoint.Run._fields))._replace(length=1),),
        members=1,
        chunks=(),
        message_groups=(bytes(8),),
        part=1,
    )
    row = history_rows.HistoryRow(2, 0, 3, 1, 0, 1, 5, 6, 7, 3, "client", "reason", 1)
    kept: dict[bytes, bytes] = {}

    class Kv:
        def floor(self, *_: object) -> None:
            return None

        def put(self, _: str, key: bytes, value: bytes) -> None:
            kept[key] = bytes(value)

    kv: Any = Kv()
    history_rows.add(kv, TOPIC_ID, 0, row)
    packed = outgoing.pack_message(fields.outgoing(data))
    bits = checkpoint.encode_lease(0, checkpoint.Lease(5, 0b1011), 9)
    owned = checkpoint.encode_lease(0, checkpoint.Lease(NEVER, 0b1011), 9)
    record = b"".join(message.record(TOPIC_ID, 5, data))
    return [
        [record],
        [checkpoint.encode(ck), checkpoint.encode(fifo)],
        [bits],
        [owned],
        [*kept.values()],
        [packed],
        [data, U32.pack(9)],
    ]
