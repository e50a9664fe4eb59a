"""A gRPC client in plain Python: for threads (threads.py) and for asyncio (aio.py), over one core without sockets.

    Channel, AsyncChannel          sockets, waiting, TLS
      └─ Calling                   connecting, backoff, which connection takes a call
           └─ ClientConnection     frames of one connection in, frames out
                └─ ClientCall      one call: its messages and its status

How a call ends when it is not answered, in the codes that retries of gRPC clients are made for:

    no server listens, no SETTINGS in time, TLS fails         UNAVAILABLE, nothing was sent; the reason is in the text
    the next calls during the pause after such an attempt     the same at once
    refused (REFUSED_STREAM), or after the last of a GOAWAY    once more, on the next connection; then UNAVAILABLE
    the connection breaks, or is silent and answers no PING   UNAVAILABLE: it may have been carried out
    the server breaks the protocol                            UNAVAILABLE for all calls of the connection; on one
                                                              stream: INTERNAL for its call
    an answer that is not gRPC, reset, too large              as gRPC's documents map it: UNKNOWN, INTERNAL, …
    the deadline                                              DEADLINE_EXCEEDED, wherever the call is; a reset is sent
    cancelled, or the channel is closed                       CANCELLED; a reset is sent

Calls that wait for a connection or for the server's limit of calls have not been sent, so they move on to the next
connection by themselves. A stream whose caller has written messages is never repeated: only the caller has them.

Import a channel from its module: threads need no asyncio.
"""
