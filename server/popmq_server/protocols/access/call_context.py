"""What handlers use of a running call: what the contexts of both transports have (transport.py)."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

import grpc


class CallContext(Protocol):
    """The context of a call: a popmq_http2.Call, or grpcio's."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None:
        """The headers of the request."""

    def peer(self) -> str:
        """The address of the client, with its kind."""

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """What TLS tells of the client: the names in its certificate, by kind, and that it is used."""

    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; None without one."""

    def add_done_callback(self, callback: Callable[[object], None]) -> None:
        """Calls `callback` when the answer has left, or the client has gone."""

    def send_initial_metadata(self, initial_metadata: tuple[tuple[str, str], ...]) -> Awaitable[None]:
        """Sends the headers of the answer now."""

    def write(self, message: bytes) -> Awaitable[None]:
        """Sends a message of the answer."""

    def abort(self, code: grpc.StatusCode, details: str, metadata: tuple[tuple[str, bytes], ...]) -> Awaitable[None]:
        """Ends the call with a status; does not return."""
