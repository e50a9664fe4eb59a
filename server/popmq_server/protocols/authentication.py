"""Authentication: identifies the caller of each call and stream, on every port, before its handler is looked up.

call ──▶ Authentication ──▶ CALLER (access_keys.py) ──▶ handler ──▶ Guarded: checks the caller's permissions
              ├─ a signature, else the names in the client's certificate ──▶ the key
              ├─ no key ──▶ UNAUTHENTICATED, for any method; apache.rocketmq.v2 reports it in its own answers, and
              │             triggers of KEDA may name a key (keda/proof.py)
              └─ too many calls of the key ──▶ RATE_LIMITED, in the same way
"""

from collections.abc import Iterable

from popmq_server.clock import pause
from popmq_server.errors import Refused
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access.access_keys import CALLER, Key, unauthenticated
from popmq_server.protocols.access.call_context import CallContext
from popmq_server.protocols.access.key_limits import KeyLimited
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.refusals import refuse

#: How long the answer to a refused call is held, in ms; for how many calls of a key, and for which requests.
HELD_MS_MAX, HELD_MAX, HELD_BYTES_MAX = 500, 1_024, 64 << 10
#: The size of a request that is not known yet.
UNKNOWN_BYTES = HELD_BYTES_MAX + 1
#: Calls that end work, or report its end: a client that made too many other calls can still make these.
_SETTLING = frozenset(
    f"/{service}/{name}"
    for service, names in {
        "popmq.v1.Broker": "Ack AckUpTo ChangeInvisibleTime EndTransaction Heartbeat ReleaseOwner RenewOwner SendBack "
        "Settle UnlockQueues UpdateOffsets",
        "apache.rocketmq.v2.MessagingService": "AckMessage ChangeInvisibleDuration EndTransaction Heartbeat "
        "ForwardMessageToDeadLetterQueue NotifyClientTermination Telemetry UpdateOffset",
    }.items()
    for name in names.split()
)

#: The headers of a request: names and values; a value is bytes if its name ends with -bin.
Headers = Iterable[tuple[str, str | bytes]]


class Authentication:
    """`answers_itself`: path prefixes of methods that refuse by themselves, through `access_keys.caller`."""

    def __init__(self, keys: Keys, metrics: Metrics, answers_itself: tuple[str, ...]) -> None:
        self._keys = keys
        self._metrics = metrics
        self._answers_itself = answers_itself

    @property
    def takes_certificates(self) -> bool:
        """Whether a client's certificate may name a key."""
        return self._keys.takes_certificates

    async def identifies(self, method: str, metadata: Headers, context: CallContext | None, size: int) -> bool:
        """Sets CALLER; whether the handler may run. A signature decides before a certificate.

        `context`: of the call, which has the certificate; None: it is not known yet. `size`: bytes of the request.
        """
        try:
            key = self._key(signed(metadata), context)
            CALLER.set(key)
            try:
                self._keys.admit(key, method in _SETTLING)
            except KeyLimited as refused:
                await _hold(key, refused, size)
                raise
        except Refused as refused:
            CALLER.set(refused)
            if not method.startswith(self._answers_itself):
                self._metrics.refusals.labels(refused.code).inc()
                return False
        return True

    async def refuse(self, context: CallContext) -> None:
        """Puts the refusal of a caller that was not identified on the wire."""
        refused = CALLER.get()
        assert isinstance(refused, Refused)
        await refuse(context, refused)

    def refuse_unknown(self) -> None:
        """Sets CALLER for a method that does not exist, before its caller learns that."""
        CALLER.set(unauthenticated("an unknown method needs an access key as any other"))

    def check(self, context: CallContext) -> None:
        """Raises Refused for a call without a valid key, before its request has arrived.

        A transport keeps large requests only for callers that have one. The call is counted when it begins.
        """
        try:
            self._key(signed(context.invocation_metadata() or ()), context)
        except Refused as refused:
            self._metrics.refusals.labels(refused.code).inc()
            raise

    def _key(self, signed: tuple[str, str], context: CallContext | None) -> Key:
        """The caller's key. Raises Refused UNAUTHENTICATED."""
        return self._keys.caller(*signed) if signed[0] or context is None else self._certified(context)

    def _certified(self, context: CallContext) -> Key:
        """The key of the client's certificate. Raises Refused UNAUTHENTICATED.

        Names of different kinds may be equal, and an authority may let a person choose one kind but not the others.
        """
        shown = context.auth_context()
        raw = [*shown.get("peer_dns", ()), *shown.get("peer_uri", ())] or shown.get("x509_common_name", ())
        names = [name.decode(errors="replace") for name in raw]
        return self._keys.certified(names) if names else self._keys.caller("", "")


def signed(metadata: Headers) -> tuple[str, str]:
    """The two headers that prove a call, "" for one that is missing."""
    authorization = date_time = ""
    for name, value in metadata:
        if name == "authorization":
            authorization = str(value)
        elif name == "x-mq-date-time":
            date_time = str(value)
    return authorization, date_time


async def _hold(key: Key, refused: KeyLimited, size: int) -> None:
    """Waits with the answer to a refused call, so that a client that calls again at once is slowed down.

    Without this a refused call would cost as much as one that is served. The time after which the client may try again
    is reduced by this wait. Large requests
    are not held, nor any with grpcio, which does not tell their sizes.
    """
    held_ms = min(refused.retry_after_ms, HELD_MS_MAX)
    if size > HELD_BYTES_MAX or key.use.held >= HELD_MAX:
        return
    key.use.held += 1
    try:
        await pause(held_ms / 1000)
    finally:
        key.use.held -= 1
    refused.tell(refused.retry_after_ms - held_ms)
