"""What one client may cost: every buffer, wait and flood has a bound here, with its reason.

A *budget* is for frames that cost the server something and the client nothing: resets, pings, settings, window updates,
empty and tiny DATA frames, refused streams. Each takes one point; points come back with time. An honest client that
cancels a thousand calls a second for ever stays within it; a flood of a hundred thousand resets a second is over in a
tenth of a second, with GOAWAY ENHANCE_YOUR_CALM.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """Sizes in bytes, times in seconds. The defaults suit messages up to 20 MiB."""

    #: A request message, unpacked. Larger ones end with RESOURCE_EXHAUSTED.
    message_bytes: int = 20 << 20
    #: Bytes of requests that handlers have not taken yet, over all connections; more end with RESOURCE_EXHAUSTED.
    requests_bytes: int = 256 << 20
    #: Bytes of answers that a connection's client has not taken: with more, its new calls end with RESOURCE_EXHAUSTED.
    unsent_bytes: int = 64 << 20
    #: What a stream writes before `Call.write` waits for the client to take it.
    write_ahead_bytes: int = 256 << 10
    #: Calls at a time on one connection; more are refused with REFUSED_STREAM, which clients try again.
    streams: int = 10_000
    #: The names and values of one request, each pair with 32 bytes more, as HTTP/2 counts them.
    headers_bytes: int = 32 << 10
    #: The same as they come over the wire, and in how many frames: a client cannot make us gather for ever.
    header_block_bytes: int = 32 << 10
    header_frames: int = 16
    #: What a client may send ahead on one stream, and on the connection.
    stream_window: int = 1 << 20
    connection_window: int = 16 << 20
    #: A frame; larger ones make large requests cheaper, but a frame is also what holds up all others of its connection.
    frame_bytes: int = 16 << 10
    #: From the connection, TLS included, to the client's first SETTINGS; and from a frame's first byte to its last.
    handshake_s: float = 20.0
    #: A client that has said nothing for so long is asked by a PING, and has so long to answer.
    keepalive_s: float = 30.0
    keepalive_timeout_s: float = 20.0
    #: A client that takes nothing of what is written to it for so long is gone.
    stalled_s: float = 120.0
    #: Points of the budget at the begin, and those that come back each second.
    budget: int = 10_000
    budget_per_s: int = 1_000
    #: DATA frames with fewer bytes than this cost a point, unless they end their stream.
    tiny_data_bytes: int = 64
