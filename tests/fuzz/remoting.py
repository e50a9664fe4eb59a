"""What brokers and name servers send: any bytes are read, or refused as a bad format. What is read is written again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from popmq_remoting import loose_json
from popmq_remoting.codes import VERSION
from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import compression, offset_ids, properties, recall, stored
from popmq_remoting.pops import handles, infos
from popmq_remoting.wire import frames
from popmq_remoting.wire.command import Command
from tests.fuzz.target import Running
from tests.remoting.writers import binary_header, frame, stored_message

T = TypeVar("T")
R = TypeVar("R")
RECORDED = sorted((Path(__file__).parents[1] / "remoting" / "codecs").glob("rocketmq-*.json"))


def _answers() -> list[bytes]:
    """Frames of real brokers."""
    return [bytes.fromhex(raw) for path in RECORDED for raw in json.loads(path.read_text()).values()]


@contextmanager
def remoting_frames() -> Iterator[Running]:
    """Frames in one piece and in two are the same commands, up to the same damage."""

    def read(*pieces: bytes) -> tuple[list[Command], bool]:
        reader = frames.CommandReader()
        found: list[Command] = []
        try:
            for piece in pieces:
                found.extend(reader.feed(piece))
        except BadFormat:
            return found, True
        return found, False

    def run(raw: bytes) -> None:
        cut = raw[0] if raw else 0
        whole = read(raw[1:])
        assert read(raw[1 : 1 + cut], raw[1 + cut :]) == whole
        for each in whole[0]:
            again = frames.write(each.code, each.opaque, each.flag, each.fields, each.body, each.remark)
            assert read(again)[0] == [replace(each, version=VERSION)]

    binary = frame(1, binary_header(28, 7, 1, "fine", {"a": "b"}), b"body")
    yield Running(run, [b"\x09" + raw[:1_500] for raw in [binary, *_answers()]])


@contextmanager
def stored_messages() -> Iterator[Running]:
    """Records, and what is inside them."""

    def run(raw: bytes) -> None:
        for message in _read(stored.read_all, raw) or []:
            place = _read(offset_ids.read, message.offset_id)
            assert place is not None
            assert place.commit_log_offset == message.commit_log_offset
            assert message.born_host
            assert isinstance(message.is_sound, bool)
            properties.read(message.properties)
            _read(partial(compression.unpacked, message.sys_flag, bytes_max=10_000), message.body)

    text = b"a\x01b\x02"
    seeds = [stored_message(properties=text), stored_message(born_host="::1"), stored_message(magic=-626843477)]
    yield Running(run, [*seeds, b"".join(seeds)])


@contextmanager
def remoting_json() -> Iterator[Running]:
    """Loose JSON is a value, which standard JSON can hold; standard JSON is read as the library reads it."""

    def run(raw: bytes) -> None:
        value = _read(loose_json.loads, raw)
        try:
            plain = json.loads(raw.decode())
        except (ValueError, RecursionError):
            plain = None
        if plain is not None:
            assert repr(value) == repr(plain)
        json.dumps(value)

    strange = b'{"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{"maxOffset":3}},1:[null,-2.5e3]}'
    yield Running(run, [strange, b'{0:"x"}', b"[1,{}]", b'{"a":{"b":[true]}}'])


@contextmanager
def pop_texts() -> Iterator[Running]:
    """Handles of pops and recalls, and infos; those that are read are written as they were."""

    def run(raw: bytes) -> None:
        text = raw[1:].decode("utf-8", "replace")
        match (raw[0] if raw else 0) % 4:
            case 0:
                handle = _read(handles.read, text)
                assert handle is None or handles.read(handle.text()) == handle
            case 1:
                recalled = _read(recall.read, text)
                assert recalled is None or recall.read(recalled.text()) == recalled
            case 2:
                _read(infos.read_starts, text)
            case _:
                _read(infos.read_offsets, text)

    seeds = [b"\x00100 5000 60000 3 0 broker-a 2 104", b"\x020 0 7;0 qo1%2 4", b"\x030 0 7,9;2 1 4"]
    yield Running(run, [*seeds, b"\x01" + recall.BrokerRecallHandle("t", "a", 5, "id").text().encode()])


def _read(read: Callable[[T], R], raw: T) -> R | None:
    """What was read; None if it was refused."""
    try:
        return read(raw)
    except BadFormat:
        return None
