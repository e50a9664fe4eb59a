"""The audit log: one line for each call of an operator that changes the broker or reads messages.

INFO popmq.audit [3f2a9c01d4e5b677]: DeleteTopic key=operator peer=ipv4:10.0.0.7:51234 code=OK request="name: …"

of Admin                       every call, whatever its outcome; but no Get… and List… of settings and numbers, because
                               tools repeat them every few seconds
of Broker, and of clients      calls in OPERATED, if only the right admin allowed them: else they are the work of
                               producers and consumers
"""

import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from typing import TypeVar

from google.protobuf import text_format
from google.protobuf.message import Message

from popmq_proto.rocketmq import definition_pb2
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import logs
from popmq_server.errors import Refused
from popmq_server.protocols.access.access_keys import BY_ADMIN, CALLER, Key
from popmq_server.protocols.native.requests import read
from popmq_server.protocols.rocketmq.status import Declined

T = TypeVar("T")
C = TypeVar("C")
Q = TypeVar("Q", bound=Message)

log = logging.getLogger("popmq.audit")
# The level does not follow --log-level: without these lines a log would look like a day without changes.
log.setLevel(logging.INFO)

#: Characters of a request in a line. Names and settings are shorter; only a filter can have more.
REQUEST_MAX = 1_000
#: A larger request is abridged, each of its texts to this number of characters.
WHOLE_BYTES, TEXT_MAX = 4 << 10, 200
#: First words of methods that only poll settings and numbers.
_NOT_AUDITED = ("Get", "List")
#: Audited in spite of their names: one shows the stacks of a client's program, the others show messages.
_AUDITED = frozenset({"GetClientStack", "GetSchedule", "ListSchedules"})
#: Methods of Broker, and of the service of official RocketMQ clients, that operators may call in place of a client.
OPERATED = frozenset({"EndTransaction", "Peek", "Recall", "Reschedule", "ReleaseOwner", "RecallMessage"})


def is_audited(method: str) -> bool:
    """Whether calls of this method of Admin are audited."""
    return method in _AUDITED or not method.startswith(_NOT_AUDITED)


def unary(method: str, call: Callable[[bytes], Awaitable[T]]) -> Callable[[bytes], Awaitable[T]]:
    """Wraps a call so that it is audited."""

    async def audited(raw: bytes) -> T:
        with _written(method, lambda: _shown(method, raw)):
            return await call(raw)

    return audited


def operated(method: str, call: Callable[[bytes], Awaitable[T]]) -> Callable[[bytes], Awaitable[T]]:
    """Wraps a call so that it is audited if only the right admin allowed it."""

    async def audited(raw: bytes) -> T:
        with _written(method, lambda: _shown(method, raw), always=False):
            return await call(raw)

    return audited


def operated_v2(method: str, call: Callable[[Q, C], Awaitable[T]]) -> Callable[[Q, C], Awaitable[T]]:
    """Like `operated`, for a parsed request of an official client. Returns the call itself if it is never audited."""
    if method not in OPERATED:
        return call

    async def audited(request: Q, client: C) -> T:
        with _written(f"v2.{method}", lambda: _text(request, request.ByteSize()), always=False):
            return await call(request, client)

    return audited


def stream(method: str, call: Callable[[bytes], AsyncGenerator[T, None]]) -> Callable[[bytes], AsyncIterator[T]]:
    """Wraps a call that answers with a stream so that it is audited when the stream ends."""

    async def audited(raw: bytes) -> AsyncIterator[T]:
        with _written(method, lambda: _shown(method, raw)):
            async with contextlib.aclosing(call(raw)) as answers:
                async for answer in answers:
                    yield answer

    return audited


@contextlib.contextmanager
def _written(method: str, shown: Callable[[], str], always: bool = True) -> Iterator[None]:
    """Writes the line when the call has ended, however it ended. `shown`: the request as text."""
    BY_ADMIN.set(False)
    code = "CANCELLED"
    try:
        yield
        code = "OK"
    except Refused as refused:
        code = refused.code
        raise
    except Declined as declined:
        code = definition_pb2.Code.Name(declined.code)
        raise
    except Exception:
        code = "INTERNAL"
        raise
    finally:
        if always or BY_ADMIN.get():
            _write(method, code, shown())


def _write(method: str, code: str, request: str) -> None:
    key, call = CALLER.get(), logs.CALL.get()
    fields = {
        "key": key.name if isinstance(key, Key) else "",
        "peer": call.peer() if call is not None else "",
        "code": code,
        "request": request,
    }
    log.info("%s", method, extra={"fields": fields})


def _shown(method: str, raw: bytes) -> str:
    """The request as text, without the body of a message. No audited request carries a secret."""
    try:
        request = read(getattr(pb, f"{method}Request"), raw)
    except Refused:
        return f"{len(raw)} bytes that are not a request"
    if isinstance(request, pb.CreateScheduleRequest):
        request.schedule.message.ClearField("body")
    return _text(request, len(raw))


def _text(request: Message, size: int) -> str:
    """One line. A large request is abridged before: to render it takes a hundred times as long as to parse it."""
    before = ""
    if request.ByteSize() > WHOLE_BYTES:
        before = f"{size} bytes without {', '.join(_abridge(request)) or 'the ends of texts'}: "
    text = before + logs.visible(text_format.MessageToString(request, as_one_line=True, as_utf8=True))
    return text if len(text) <= REQUEST_MAX else f"{text[:REQUEST_MAX]}…"


def _abridge(message: Message) -> list[str]:
    """Removes lists and cuts texts, in parts too; returns the names of the lists."""
    lists: list[str] = []
    for field, value in message.ListFields():
        if field.is_repeated:
            message.ClearField(field.name)
            lists.append(field.name)
        elif isinstance(value, Message):
            lists += _abridge(value)
        elif isinstance(value, str | bytes):
            setattr(message, field.name, value[:TEXT_MAX])
    return lists
