"""Send requests that are made before the clock starts; each message is unique.

A load process that builds 256 protobuf objects for every call mostly measures itself. Here protobuf makes one request;
the others are copies of its bytes with new ids written over the old ones, at the fixed stride of the messages.
"""

from popmq_proto.v1 import popmq_pb2 as pb

ID_BYTES = 16  # hexadecimal: 4 of the caller, 8 of the request, 4 of the place in it
MARK = "@" * ID_BYTES


class SendRequests:
    """An endless supply of requests of one shape; a message id also starts its body, so that bodies differ too."""

    def __init__(self, topic: str, batch: int, body_bytes: int, caller: int, message_groups: int = 0) -> None:
        """`message_groups`: how many to use in turn, each caller beginning at a different one; 0 = none."""
        message = pb.Message(message_id=MARK, body=MARK.encode().ljust(body_bytes, b"."), tag="bench")
        messages = [message] * batch
        if message_groups:
            message.message_group = "g@@@@"
        self._bytes = bytearray(pb.SendRequest(topic=topic, messages=messages).SerializeToString())
        starts = _positions(self._bytes, MARK.encode())
        self._stride = starts[2] - starts[0] if batch > 1 else len(self._bytes)
        self._fields = starts[:2]
        self._batch = batch
        self._message_groups = message_groups
        self._group_at = self._bytes.find(b"g@@@@") + 1
        self._next = 0
        self._next_batch = caller * 997
        self._write(0, f"{caller:04x}".encode())
        for place in range(4):
            digits = "".join(f"{i:04x}"[place] for i in range(batch)).encode()
            for start in self._fields:
                self._spread(start + 12 + place, digits)

    def next(self) -> bytes:
        """The bytes of a SendRequest that was never sent before."""
        self._write(4, f"{self._next:08x}".encode())
        self._next += 1
        if self._message_groups:
            self._turn_groups()
        return bytes(self._bytes)

    def _turn_groups(self) -> None:
        """Writes the next message groups, one into each message."""
        numbers = [(self._next_batch + place) % self._message_groups for place in range(self._batch)]
        self._next_batch += self._batch
        for place in range(4):
            self._spread(self._group_at + place, "".join(f"{number:04d}"[place] for number in numbers).encode())

    def _write(self, at: int, digits: bytes) -> None:
        for place, digit in enumerate(digits, at):
            for start in self._fields:
                self._spread(start + place, bytes([digit]) * self._batch)

    def _spread(self, at: int, digits: bytes) -> None:
        """Writes one byte into every message, `digits[i]` into the i-th."""
        end = at + self._stride * (self._batch - 1) + 1
        self._bytes[at : end : self._stride] = digits


def _positions(content: bytearray, mark: bytes) -> list[int]:
    found: list[int] = []
    at = content.find(mark)
    while at >= 0 and len(found) < 3:
        found.append(at)
        at = content.find(mark, at + len(mark))
    return found
