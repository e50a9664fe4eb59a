"""The memory into which sockets are read: one buffer for all connections of an event loop.

For a protocol that is not a BufferedProtocol, asyncio allocates 256 KiB for each read, and returns most of it. With
glibc that maps and unmaps pages: a read of 1 KiB took 13 µs of CPU time, into memory that is kept 2 µs.
asyncio fills the buffer and passes it to the protocol in one step, so connections can share it.
"""

RECEIVE_BYTES = 256 << 10


class ReceiveBuffer:
    """Memory for `get_buffer` and `buffer_updated` of a BufferedProtocol."""

    def __init__(self) -> None:
        self.memory = memoryview(bytearray(RECEIVE_BYTES))

    def copy(self, size: int) -> bytes:
        """The first `size` bytes, in an object of their own."""
        return bytes(self.memory[:size])
