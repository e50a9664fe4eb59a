"""One request over HTTP, as handlers know a call: what access/call_context.py asks for."""

from collections.abc import Callable
from typing import Any, NoReturn

from popmq_http2 import Aborted, Code
from popmq_http2.elapsed import monotonic

Metadata = tuple[tuple[str, str | bytes], ...]


class HttpCall:
    """A call in progress. `path`: /package.Service/Method, as its gRPC has it."""

    def __init__(
        self,
        path: str,
        metadata: Metadata,
        peer: str,
        auth_context: dict[str, list[bytes]],
        when_lost: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """`when_lost`: registers what is called when the connection ends."""
        self.path = path
        self._metadata, self._peer, self._auth_context = metadata, peer, auth_context
        self._when_lost = when_lost
        self._until_s: float | None = None
        self._callbacks: list[Callable[[HttpCall], Any]] = []
        self._is_over = False

    def within(self, timeout_s: float) -> None:
        """Sets the deadline of the caller."""
        self._until_s = monotonic() + timeout_s

    def invocation_metadata(self) -> Metadata:
        """The headers of the request, with lower-case names."""
        return self._metadata

    def peer(self) -> str:
        return self._peer

    def auth_context(self) -> dict[str, list[bytes]]:
        return self._auth_context

    def time_remaining(self) -> float | None:
        return None if self._until_s is None else max(0.0, self._until_s - monotonic())

    def add_done_callback(self, callback: Callable[[Any], Any]) -> None:
        if self._is_over:
            callback(self)
        else:
            self._callbacks.append(callback)

    def add_disconnect_callback(self, callback: Callable[[Any], Any]) -> None:
        """Calls `callback(call)` when the connection ends; as popmq_http2's Call."""
        self._when_lost(lambda: callback(self))

    async def send_initial_metadata(self, initial_metadata: Any) -> None:
        """Only calls with streams send metadata before their answer, and these are not served."""

    async def write(self, message: bytes) -> None:
        """As `send_initial_metadata`."""

    async def abort(self, code: Any, message: str = "", metadata: Metadata = ()) -> NoReturn:
        """Ends the call with a status: raises Aborted."""
        raise Aborted(Code(code.value[0]), message, metadata)

    def over(self) -> None:
        """The answer was written, or the client has gone."""
        self._is_over = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)
