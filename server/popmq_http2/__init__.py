"""A gRPC server on asyncio, in plain Python: HTTP/2 made for gRPC, nothing else.

What came in one turn of the event loop is answered with one write, header blocks that repeat are known by their bytes,
and messages of a stream share DATA frames. Every buffer and every wait has a bound (limits.py).
"""

from popmq_http2.call import Call
from popmq_http2.limits import Limits
from popmq_http2.server import Method, Server, bidirectional, client_streaming, server_streaming, unary
from popmq_http2.status import Aborted, Code, Metadata

__all__ = [
    "Aborted",
    "Call",
    "Code",
    "Limits",
    "Metadata",
    "Method",
    "Server",
    "bidirectional",
    "client_streaming",
    "server_streaming",
    "unary",
]
