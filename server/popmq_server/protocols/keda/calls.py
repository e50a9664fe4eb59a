"""externalscaler.ExternalScaler for KEDA. What answers is imported by the first call: most brokers have no KEDA.

    KEDA ─▶ the transport: a signature or a certificate, if there is one ─▶ identified: else the key in the trigger
         ─▶ admitted and counted as any call ─▶ ScalerService ─▶ Guarded ─▶ Engine

See docs/decisions/0063-keda.md.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncGenerator, Iterator
from typing import TYPE_CHECKING, Any

from popmq_server.clock import Clock
from popmq_server.contract.engine import Polling
from popmq_server.errors import Refused
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.known_keys import Keys

if TYPE_CHECKING:
    from popmq_server.protocols.keda.service import ScalerService

SCALER = "externalscaler.ExternalScaler"
#: Each method of the service, and whether it answers with a stream.
METHODS = {
    "IsActive": False,
    "StreamIsActive": True,
    "GetMetricSpec": False,
    "GetMetrics": False,
    "StreamMetricSpec": True,
}


class ScalerCalls:
    """`engine`: with access keys, the guarded one."""

    def __init__(self, engine: Polling, clock: Clock, keys: Keys | None) -> None:
        self._engine = engine
        self._clock = clock
        self._keys = keys

    @functools.cached_property
    def _service(self) -> ScalerService:
        from popmq_server.protocols.keda.service import ScalerService

        return ScalerService(self._engine, self._clock)

    def identify(self, name: str, raw: bytes, context: CallContext) -> None:
        """Sets CALLER to the access key that the trigger names, if the call itself proves none. Raises Refused."""
        if self._keys is not None:
            with spelled_out():
                from popmq_server.protocols.keda import proof, trigger

                proof.identify(self._keys, trigger.metadata_of(name, raw), context)

    def call(self, name: str) -> Any:
        """The method of this name: takes the bytes of the request; returns a message, or is a generator of them."""
        return functools.partial(self._stream if METHODS[name] else self._unary, name)

    async def _unary(self, name: str, raw: bytes) -> Any:
        with spelled_out():
            return await getattr(self._service, name)(raw)

    async def _stream(self, name: str, raw: bytes) -> AsyncGenerator[Any, None]:
        with spelled_out():
            async with contextlib.aclosing(getattr(self._service, name)(raw)) as answers:
                async for answer in answers:
                    yield answer


@contextlib.contextmanager
def spelled_out() -> Iterator[None]:
    """Appends what to do to the message of a refusal: KEDA's log shows the message only."""
    try:
        yield
    except Refused as refused:
        if refused.action and refused.action not in refused.message:
            refused.message += f"; {refused.action}"
        raise
