"""Requests made wrong on purpose: fields set to odd values, and bytes damaged. Repeatable by its seed."""

import random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

from popmq_proto.v1 import popmq_pb2 as pb

TEXTS = ["", " ", "\0", "\n", "é", "%", "+", "a" * 64, "a" * 65, "a" * 121, "a" * 4_097, "../..", "%DLQ%billing", "🦀"]
INTEGERS = [0, 1, 2, 3, 999, 1_000, 4_096, 4_097, 60_000, 60_001, 43_200_000, 2**31 - 1]
LIMITS = {
    FieldDescriptor.CPPTYPE_INT32: [-(2**31), -1, 2**31 - 1],
    FieldDescriptor.CPPTYPE_INT64: [-(2**63), -1, 2**31, 2**63 - 1],
    FieldDescriptor.CPPTYPE_UINT32: [2**32 - 1],
    FieldDescriptor.CPPTYPE_UINT64: [2**63, 2**64 - 1],
    FieldDescriptor.CPPTYPE_ENUM: [-1, 1, 2, 99],
}
REQUEST_BYTES_MAX = 1 << 20
#: Numbers of whatever fields a later contract may have.
UNKNOWN = [b"\xa2\x06\x03new", b"\xa8\x06\x07", b"\xf8\xff\xff\xff\x0f\x01"]


class Mutator:
    """Makes requests wrong. `names`: real names, handles and ids, which it puts where others belong."""

    def __init__(self, seed: int, names: list[str]) -> None:
        self.pick = random.Random(seed)
        self.names = names

    def __call__(self, request: Message) -> bytes:
        """The bytes of a request with up to three things wrong in it."""
        wrong = type(request)()
        wrong.CopyFrom(request)
        for _ in range(self.pick.randint(0, 3)):
            self._change(wrong)
        raw = wrong.SerializeToString()
        if self.pick.random() < 0.3:
            raw = self._damage(raw)
        # What is longer is cut: beyond 20 MiB it is the transport that answers.
        return without_long_waits(type(request), raw[:REQUEST_BYTES_MAX])

    def _change(self, message: Message) -> None:
        fields: Any = message.DESCRIPTOR.fields
        if not fields:
            return
        field: FieldDescriptor = self.pick.choice(fields)
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self._change_map(message, field)
        elif field.is_repeated:
            self._change_list(message, field)
        elif field.cpp_type == field.CPPTYPE_MESSAGE:
            self._change_inside(message, field)
        elif self.pick.random() < 0.15:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, self._value(field))

    def _change_inside(self, message: Message, field: FieldDescriptor) -> None:
        if self.pick.random() < 0.15:
            message.ClearField(field.name)
            return
        inside = getattr(message, field.name)
        inside.SetInParent()
        self._change(inside)

    def _change_list(self, message: Message, field: FieldDescriptor) -> None:
        values: Any = getattr(message, field.name)
        kind = self.pick.randrange(4)
        if kind == 0:
            message.ClearField(field.name)
        elif field.cpp_type == field.CPPTYPE_MESSAGE:
            self._change(self.pick.choice(values) if kind == 1 and values else values.add())
        elif kind == 1 and values:
            values[self.pick.randrange(len(values))] = self._value(field)
        else:
            values.extend([self._value(field)] * self.pick.choice([1, 2, 17, 4_097 if kind == 2 else 3]))

    def _change_map(self, message: Message, field: FieldDescriptor) -> None:
        assert field.message_type is not None
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        for _ in range(self.pick.choice([1, 3, 130])):
            getattr(message, field.name)[self._value(key)] = self._value(value)

    def _value(self, field: FieldDescriptor) -> Any:
        if field.cpp_type == field.CPPTYPE_STRING:
            text = self.pick.choice(self.names if self.pick.random() < 0.5 else TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        if field.cpp_type == field.CPPTYPE_BOOL:
            return self.pick.random() < 0.5
        known = [0] if field.cpp_type == field.CPPTYPE_ENUM else INTEGERS
        return self.pick.choice(LIMITS[field.cpp_type] if self.pick.random() < 0.5 else known)

    def _damage(self, raw: bytes) -> bytes:
        place = self.pick.randrange(len(raw) + 1)
        kind = self.pick.randrange(6)
        if kind == 0:
            return raw[:place]
        if kind == 1:
            return raw[:place] + self.pick.randbytes(self.pick.randint(1, 8)) + raw[place:]
        if kind == 2:
            return raw + self.pick.choice(UNKNOWN)
        if kind == 3:
            return raw + raw[place:]
        if kind == 4:
            return raw[:place] + raw[place + self.pick.randint(1, 8) :]
        flipped = bytearray(raw)
        for _ in range(min(len(flipped), 3)):
            flipped[self.pick.randrange(len(flipped))] ^= 1 << self.pick.randrange(8)
        return bytes(flipped)


def without_long_waits(kind: type[Message], raw: bytes) -> bytes:
    """The same bytes, unless they are a request that would be parked: time stands still in these tests."""
    try:
        request = kind.FromString(raw)
    except DecodeError:
        return raw
    if not isinstance(request, pb.PopRequest | pb.WaitAvailableRequest) or not 0 < request.wait_ms <= 60_000:
        return raw
    request.wait_ms = 0
    return request.SerializeToString()
