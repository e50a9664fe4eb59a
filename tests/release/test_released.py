"""The contract keeps what a release had: what proto/released.py would find, and that it finds it."""

import subprocess
import sys
from typing import Any

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pool import DescriptorPool

from popmq_proto.v1 import popmq_pb2
from tests.sources import ROOT

sys.path.insert(0, str(ROOT / "proto"))
import released

sys.path.pop(0)


def contract() -> descriptor_pb2.FileDescriptorProto:
    """A small contract."""
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", package="a", syntax="proto3")
    message = file.message_type.add(name="M")
    for number, name in enumerate(("one", "two"), 1):
        message.field.add(name=name, number=number, type=descriptor_pb2.FieldDescriptorProto.TYPE_STRING)
    enum = file.enum_type.add(name="E")
    enum.value.add(name="ZERO", number=0)
    enum.value.add(name="ONE", number=1)
    service = file.service.add(name="S")
    service.method.add(name="Call", input_type=".a.M", output_type=".a.M")
    return file


def described(file: descriptor_pb2.FileDescriptorProto) -> FileDescriptor:
    pool = DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return pool.FindFileByName(file.name)


def test_the_contract_has_all_that_was_released() -> None:
    gone = released.broken(released.RECORD.read_text().splitlines(), released.lines(popmq_pb2.DESCRIPTOR))
    assert gone == [], "released numbers, types and names stay"


CHANGES: dict[str, tuple[Any, str]] = {
    "a removed field": (lambda file: file.message_type[0].field.pop(), "field a.M.two = 2: string"),
    "a renumbered field": (
        lambda file: setattr(file.message_type[0].field[1], "number", 3),
        "field a.M.two = 2: string",
    ),
    "a renamed field": (
        lambda file: setattr(file.message_type[0].field[1], "name", "due"),
        "field a.M.two = 2: string",
    ),
    "another type": (lambda file: setattr(file.message_type[0].field[1], "type", 12), "field a.M.two = 2: string"),
    "a list": (lambda file: setattr(file.message_type[0].field[1], "label", 3), "field a.M.two = 2: string"),
    "a removed value": (lambda file: file.enum_type[0].value.pop(), "value a.E.ONE = 1"),
    "a removed method": (lambda file: file.service[0].method.pop(), "method a.S.Call: a.M -> a.M"),
    "a stream": (
        lambda file: setattr(file.service[0].method[0], "server_streaming", True),
        "method a.S.Call: a.M -> a.M",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_break_is_found(change: str) -> None:
    before = list(released.lines(described(contract())))
    file = contract()
    CHANGES[change][0](file)
    assert released.broken(before, released.lines(described(file))) == [CHANGES[change][1]]


def test_adding_a_field_does_not_break_the_contract() -> None:
    before = list(released.lines(described(contract())))
    file = contract()
    file.message_type[0].field.add(name="three", number=3, type=descriptor_pb2.FieldDescriptorProto.TYPE_INT64)
    file.enum_type[0].value.add(name="TWO", number=2)
    assert released.broken(before, released.lines(described(file))) == []


def test_the_program_says_what_is_gone_by_its_exit_code() -> None:
    done = subprocess.run([sys.executable, ROOT / "proto/released.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
