"""A gRPC server on asyncio, in plain Python: only the part of HTTP/2 that gRPC needs.

It answers everything that came in one turn of the event loop with one write, recognises repeated header blocks by their
bytes, and puts several messages of a stream into one DATA frame. Every buffer and every wait has a limit (limits.py).
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
