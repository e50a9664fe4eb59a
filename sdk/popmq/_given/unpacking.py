"""Bodies that their `encoding` says are compressed, as clients of RocketMQ send them."""

import zlib

#: Bytes of an unpacked body at most: a small body may unpack to thousands of times its size.
UNPACKED_BYTES_MAX = 32 * 1024 * 1024
#: The encodings that the standard library unpacks.
KNOWN = ("GZIP", "ZLIB")
#: zlib reads from the body which of its two forms it has: clients call both GZIP.
_EITHER = 32 + zlib.MAX_WBITS


def unpacked(body: bytes, encoding: str) -> bytes:
    """The body before it was compressed; as it is with another encoding.

    Raises ValueError for one that is damaged, or larger than UNPACKED_BYTES_MAX.
    """
    if encoding not in KNOWN:
        return body
    found, left = bytearray(), body
    while left:  # gzip may have several members
        member = zlib.decompressobj(_EITHER)
        try:
            found += member.decompress(left, UNPACKED_BYTES_MAX + 1 - len(found))
        except zlib.error as error:
            raise ValueError(f"the body is not {encoding}, as its encoding says: {error}") from error
        if len(found) > UNPACKED_BYTES_MAX or member.unconsumed_tail:
            raise ValueError(f"the body is larger than {UNPACKED_BYTES_MAX >> 20} MiB when it is unpacked")
        if not member.eof:
            raise ValueError(f"the body is not {encoding}, as its encoding says: it is cut short")
        left = member.unused_data
    return bytes(found)
