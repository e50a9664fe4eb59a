"""Bodies that their producer compressed: sysFlag 1, and bits 8 to 10 for the method.

The standard library has zlib and gzip. Official gRPC producers send gzip, which their proxy marks as plain sysFlag 1,
so the two are told apart by their first bytes. Bodies by LZ4 and ZSTD are handed on as they are, with their method.
"""

from __future__ import annotations

import zlib

from popmq_remoting.codes import SysFlag
from popmq_remoting.errors import BadFormat

#: The method by its number; 0 was zlib before there were others.
METHODS = {0: "zlib", 1: "lz4", 2: "zstd", 3: "zlib"}
_GZIP = b"\x1f\x8b"
#: zlib's way to say: a zlib or a gzip header, whichever is there.
_EITHER_HEADER = 32 + zlib.MAX_WBITS


def method(sys_flag: int, body: bytes) -> str:
    """ "zlib", "gzip", "lz4" or "zstd"; "" for a body that is not compressed."""
    if not sys_flag & SysFlag.COMPRESSED:
        return ""
    named = METHODS.get(sys_flag >> 8 & 7, f"method {sys_flag >> 8 & 7}")
    return "gzip" if named == "zlib" and body.startswith(_GZIP) else named


def unpacked(sys_flag: int, body: bytes, bytes_max: int) -> bytes:
    """The body as it was before. Raises BadFormat if it is damaged, too large, or compressed by another method."""
    used = method(sys_flag, body)
    if not used:
        return body
    if used not in ("zlib", "gzip"):
        raise BadFormat(f"a body compressed by {used}, which this program cannot read")
    unpacking = zlib.decompressobj(_EITHER_HEADER)
    try:
        plain = unpacking.decompress(body, bytes_max + 1)
    except zlib.error as error:
        raise BadFormat(f"a damaged compressed body: {error}") from None
    if len(plain) > bytes_max:
        raise BadFormat(f"a compressed body of more than {bytes_max} bytes")
    if not unpacking.eof:
        raise BadFormat("a compressed body that ends too early")
    return plain
