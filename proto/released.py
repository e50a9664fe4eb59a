"""Says whether the contract still has everything that a release had: nothing removed, renumbered, retyped or renamed.

    python proto/released.py             prints what released.txt has and popmq.proto lacks; exit code 1 if there is any
    python proto/released.py --record    writes released.txt: part of a release (CONTRIBUTING.md)

released.txt has a line for each field, enum value and method of popmq.v1. Added lines are not a break: they become part
of the file with the next release.
"""

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor, FileDescriptor

RECORD = Path(__file__).with_name("released.txt")
_TYPES = {
    value: name.removeprefix("TYPE_").lower()
    for name, value in vars(FieldDescriptor).items()
    if name.startswith("TYPE_") and isinstance(value, int)
}


def lines(file: FileDescriptor) -> Iterator[str]:
    """Each part of a contract that clients depend on, as one line."""
    for message in file.message_types_by_name.values():
        yield from _message(message)
    for enum in file.enum_types_by_name.values():
        yield from _enum(enum)
    for service in file.services_by_name.values():
        for method in service.methods:
            asked = f"{'stream ' * method.client_streaming}{method.input_type.full_name}"
            answered = f"{'stream ' * method.server_streaming}{method.output_type.full_name}"
            yield f"method {method.full_name}: {asked} -> {answered}"


def _message(message: Descriptor) -> Iterator[str]:
    for field in message.fields:
        named = field.message_type or field.enum_type
        kind = named.full_name if named is not None else _TYPES[field.type]
        many = "repeated " if field.is_repeated else ""
        oneof = f" in {field.containing_oneof.name}" if field.containing_oneof is not None else ""
        yield f"field {field.full_name} = {field.number}: {many}{kind}{oneof}"
    for nested in message.nested_types:
        yield from _message(nested)
    for enum in message.enum_types:
        yield from _enum(enum)


def _enum(enum: EnumDescriptor) -> Iterator[str]:
    return (f"value {enum.full_name}.{value.name} = {value.number}" for value in enum.values)


def broken(released: Iterable[str], now: Iterable[str]) -> list[str]:
    """Released names that are gone; with what is under its name or number now."""
    present = set(now)
    return sorted(line for line in released if line and line not in present)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true", help="write released.txt instead")
    record: bool = parser.parse_args().record
    from popmq_proto.v1 import popmq_pb2

    now = sorted(lines(popmq_pb2.DESCRIPTOR))
    if record:
        RECORD.write_text("\n".join(now) + "\n")
        print(f"proto: {len(now)} lines in {RECORD.name}")
        return 0
    gone = broken(RECORD.read_text().splitlines(), now)
    for line in gone:
        print(f"proto: released, and gone or changed: {line}", file=sys.stderr)
    return 1 if gone else 0


if __name__ == "__main__":
    sys.exit(main())
