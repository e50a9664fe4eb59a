"""Limits on what one client may cost: every buffer, wait and flood has a limit here, with its reason.

The *budget* covers frames that cost the server something and the client nothing: resets, pings, settings, window
updates, empty and tiny DATA frames, refused streams. Each costs one point; points come back with time. An honest client
that cancels a thousand calls a second, permanently, stays within it; a flood of a hundred thousand resets a second ends
after a tenth of a second, with GOAWAY ENHANCE_YOUR_CALM.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds. The defaults suit messages up to 20 MiB."""

    #: A request message, unpacked. Larger ones end with RESOURCE_EXHAUSTED.
    message_bytes: int = 20 << 20
    #: Bytes of requests that handlers have not taken yet, and of all open calls with their headers, on all connections.
    #: Before there are more, the largest requests of the address and connection that hold most end with
    #: RESOURCE_EXHAUSTED.
    requests_bytes: int = 256 << 20
    #: Such bytes of one connection beyond which each call has to prove its caller before its handler begins: 43 calls
    #: have as many.
    unproved_bytes: int = 64 << 10
    #: By how much an unfinished request has to grow from one look at its connection to the next (keepalive_s).
    progress_bytes: int = 16 << 10
    #: Answers that a client has not taken from its connection; above this, new calls end with RESOURCE_EXHAUSTED.
    unsent_bytes: int = 64 << 20
    #: Bytes that a stream may hold before `Call.write` waits for the client to take them.
    write_ahead_bytes: int = 256 << 10
    #: Concurrent calls on one connection; more are refused with REFUSED_STREAM, which clients retry.
    streams: int = 10_000
    #: The names and values of one request, plus 32 bytes for each pair, as HTTP/2 counts them.
    headers_bytes: int = 32 << 10
    #: Headers of a request that cost no points; four further ones cost one. Clients of gRPC send 10 to 20.
    free_headers: int = 64
    #: The encoded header block, and its number of frames: a client cannot make us collect frames forever.
    header_block_bytes: int = 32 << 10
    header_frames: int = 16
    #: Bytes that a client may send ahead on one stream, and on the connection.
    stream_window: int = 1 << 20
    connection_window: int = 16 << 20
    #: One frame. Larger frames make large requests cheaper, but block the connection's other streams for longer.
    frame_bytes: int = 16 << 10
    #: For the TLS handshake, then for the client's preface and SETTINGS; and for a closing connection's last bytes.
    handshake_s: float = 20.0
    #: Silence after which a client gets a PING, and the time it then has to send anything.
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 20.0
    #: A client that reads none of the data written to it, or answers no PING, for this long is disconnected.
    stalled_s: float = 120.0
    #: Open connections of one address; a further one gets GOAWAY. Clients open one or a few each.
    connections_per_address: int = 1_000
    #: Points of the budget at the start, and those that come back each second.
    budget: int = 10_000
    budget_per_s: int = 1_000
    #: DATA frames with fewer bytes than this cost a point, unless they end their stream.
    tiny_data_bytes: int = 64
