"""What both channels over grpcio share: errors, credentials, and calls that are counted because of forks."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from popmq._transport import fork
from popmq._transport.call import EncodedRequest
from popmq._transport.connection import Connection
from popmq_http2 import Code
from popmq_http2.client.call import CallFailed, Status


@contextmanager
def under_way() -> Iterator[None]:
    """Counts a call, for forks, and turns errors of gRPC into CallFailed."""
    fork.check()
    token = fork.begin()
    try:
        yield
    except grpc.RpcError as refused:
        raise failed(refused) from None
    finally:
        fork.end(token)


def as_message(request: Any) -> Any:
    """A request as the stubs take it."""
    return request.message() if isinstance(request, EncodedRequest) else request


def failed(refused: Any) -> CallFailed:
    """An error of gRPC as one that is the same for each transport."""
    code = Code(refused.code().value[0])
    text, metadata = refused.details() or "", tuple((key, value) for key, value in refused.trailing_metadata() or ())
    if code is Code.INTERNAL and text.startswith("Stream removed"):
        code = Code.UNAVAILABLE  # how gRPC reports a connection that broke during an answer
    return CallFailed(Status(code, text, metadata))


def credentials(connection: Connection) -> grpc.ChannelCredentials | None:
    """Of TLS; None without. Raises InvalidField for client certificates as the other transport does."""
    if not connection.tls:
        return None
    root = connection.tls_ca.encode() if connection.tls_ca else None
    if not connection.client_cert:
        return grpc.ssl_channel_credentials(root)
    connection.tls_context()  # grpcio would only log what is wrong with the files, and no call would say it
    chain, key = (Path(file).read_bytes() for file in connection.client_cert)
    return grpc.ssl_channel_credentials(root, key, chain)
