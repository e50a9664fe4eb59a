"""popmq.v1 over plain HTTP, for clients without gRPC: the unary calls of the Connect protocol.

    POST /popmq.v1.Broker/Send          application/json: the protobuf JSON of the request; or application/proto
    GET  /popmq.v1.Admin/GetTopic?encoding=json&message=…          calls without side effects

    port       listens, counts connections, stops
    http1      one connection of HTTP/1.1: h11 reads and writes, this one bounds sizes, times and memory
    call       one request, as handlers know a call (access/call_context.py)
    reading    what a request says: content-type, message, gzip, deadline
    json_text  the JSON of protobuf ↔ its bytes
    password   HTTP's Basic authentication as a proof
    unary      finds the method, checks the caller, translates both ways; the same handlers as those of gRPC run
    answers    Connect's errors: a JSON object, and a status of HTTP

A refusal has the same code, text and ErrorInfo as over gRPC, in `details`. Calls with streams (Session, Backup) are
answered `unimplemented`. A web page may call only if its origin is named (`--http-origins`).

The protocol: https://connectrpc.com/docs/protocol. See docs/decisions/0059-http.md.
"""
