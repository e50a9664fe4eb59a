"""gRPC on asyncio or threads, in plain Python: only the part of HTTP/2 that gRPC needs, as a server and as a client.

It answers everything that came in one turn of the event loop with one write, recognises repeated header blocks by their
bytes, and puts several messages of a stream into one DATA frame. Every buffer and every wait has a limit (limits.py).

The client is in popmq_http2.client, the server in popmq_http2.server. The names of the server are imported when they
are first used: a program that only calls others needs neither them nor asyncio.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from popmq_http2.limits import Limits
    from popmq_http2.server.arrivals import Arrival
    from popmq_http2.server.call import Call, Method
    from popmq_http2.server.server import Server, bidirectional, client_streaming, server_streaming, unary
    from popmq_http2.status import Aborted, Code, Metadata
else:

    def __getattr__(name: str) -> Any:
        module = _MODULES.get(name)
        if module is None:
            raise AttributeError(f"module 'popmq_http2' has no attribute {name!r}")
        value = globals()[name] = getattr(importlib.import_module(f"popmq_http2.{module}"), name)
        return value


#: The modules of the names.
_MODULES = {
    "Aborted": "status",
    "Arrival": "server.arrivals",
    "Call": "server.call",
    "Code": "status",
    "Limits": "limits",
    "Metadata": "status",
    "Method": "server.call",
    "Server": "server.server",
    "bidirectional": "server.server",
    "client_streaming": "server.server",
    "server_streaming": "server.server",
    "unary": "server.server",
}

__all__ = [
    "Aborted",
    "Arrival",
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
