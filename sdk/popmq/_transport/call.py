"""One request to the broker and how its answer is read; lists that come in pages; the errors of the contract."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from popmq.errors import BY_CODE, PopMQError
from popmq_proto.v1 import popmq_pb2 as pb

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request: its method as "Service.Method", how to read the answer, and which of the Timeouts bounds it."""

    method: str
    request: Any
    read: Callable[[Any, bool], T]
    timeout: str = "admin"
    wait: float = 0.0  # seconds that the broker may park it, beyond the timeout
    once: bool = False  # never retried, because a second try would do it a second time
    marked: bool = False  # the request says that it is a repeat of one which may have been carried out
    pages: Pages | None = None  # the answer is a list that comes in pages
    #: A repeat that is refused with one of these was carried out by the try before, whose answer was lost: it is read
    #: as None.
    done: tuple[type[PopMQError], ...] = ()


class Pages(NamedTuple):
    """How a list is asked for page by page: its rows in an answer, its size in a request, the rows wanted (0 = all).

    `size`: "" for a list whose pages the broker cuts. `also`: another list of the same answer, whose rows count for the
    same pages.
    """

    rows: str
    size: str = "page_size"
    most: int = 0
    also: str = ""

    def next(self, request: Any, whole: Any) -> bool:
        """Sets the request to the next page; returns whether there is one. `whole` None: the first."""
        come = 0 if whole is None else len(getattr(whole, self.rows))
        if whole is not None and (not whole.next_page_token or come >= self.most > 0):
            return False
        if self.size:
            setattr(request, self.size, min(PAGE_ROWS, self.most - come) if self.most else PAGE_ROWS)
        request.page_token = "" if whole is None else whole.next_page_token
        return True

    def add(self, whole: Any, page: Any) -> None:
        """Adds a page to those before it."""
        for rows in filter(None, (self.rows, self.also)):
            getattr(whole, rows).extend(getattr(page, rows))
        whole.next_page_token = page.next_page_token


class EncodedRequest:
    """A request whose messages are encoded already: its other fields, then each message as it is.

    Its bytes are joined in one step. Read and written again as a whole it would take seven times as long.
    """

    def __init__(self, head: Any, messages: Sequence[bytes]) -> None:
        self._head = head
        self._messages = messages

    def SerializeToString(self) -> bytes:
        """Its bytes."""
        return b"".join([self._head.SerializeToString(), *self._framed()])

    def _framed(self) -> Iterator[bytes]:
        number = self._head.MESSAGES_FIELD_NUMBER
        heads = {size: field_head(number, size) for size in {*map(len, self._messages)}}
        for message in self._messages:
            yield heads[len(message)]
            yield message

    def message(self) -> Any:
        """The same as a message of the contract."""
        return type(self._head).FromString(self.SerializeToString())


@functools.lru_cache(maxsize=4096)
def field_head(number: int, size: int) -> bytes:
    """What comes before the bytes of a field; nothing if there are none, since such a field is left out.

    A message is never left out: it has an id.
    """
    return bytes([number << 3 | 2]) + varint(size) if size else b""


def varint(value: int) -> bytes:
    """A number as protobuf has it: seven bits a byte, the lowest first."""
    low = bytearray()
    while value > 127:
        low.append(value & 127 | 128)
        value >>= 7
    return bytes(low) + bytes([value])


#: Rows of one page.
PAGE_ROWS = 1000


def paged(rows: str, size: str, most: int) -> Pages | None:
    """The pages of a list of at most `most` rows; None when one answer has them all, or refuses the number."""
    return Pages(rows, size, most) if most > PAGE_ROWS else None


def error_of(info: pb.ErrorInfo) -> PopMQError:
    """The exception for an error of the broker. A code of a newer broker becomes a plain PopMQError.

    An action may name the field that says when to try again: who reads the text sees the time.
    """
    name = pb.Code.Name(info.code) if info.code in pb.Code.values() else f"CODE_{info.code}"
    return BY_CODE.get(name, PopMQError)(
        info.message or name,
        code=name,
        field=info.field,
        action=info.action.replace("retry_after_ms", f"{info.retry_after_ms} ms"),
        retryable=info.retryable,
        retry_after=info.retry_after_ms / 1000,
    )
