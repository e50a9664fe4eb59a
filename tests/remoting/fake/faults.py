"""What can go wrong between a request and its answer."""

from dataclasses import dataclass, field
from enum import Enum, auto

from popmq_remoting.codes import ResponseCode
from popmq_remoting.wire.command import Response, texts


class Kind(Enum):
    #: The answer has a number that nobody asked with.
    WRONG_OPAQUE = auto()
    #: A request of the server comes first, with the number of the client's own request; it wants no answer.
    ONEWAY_FIRST = auto()
    #: The answer comes twice.
    TWICE = auto()
    #: Done, never answered.
    SILENT = auto()
    #: Done, answered after `seconds`.
    SLOW = auto()
    #: Done; the connection ends after `size` bytes of the answer.
    CUT = auto()
    #: Not done; the connection ends.
    DROPPED = auto()
    #: Not done; bytes that are no frame.
    GARBAGE = auto()
    #: Not done; the beginning of a frame of 261 MiB.
    HUGE = auto()
    #: Not done; another answer.
    ANSWER = auto()
    #: Done; the answer's fields are left out.
    EMPTY_HEADER = auto()


@dataclass(frozen=True)
class Fault:
    kind: Kind
    seconds: float = 0.0
    size: int = 0
    answer: Response = field(default_factory=lambda: Response(ResponseCode.SYSTEM_ERROR))


def answering(code: int, remark: str = "") -> Fault:
    """A code instead of the answer: 2 is busy, 1500 goes away, 210 has no messages."""
    return Fault(Kind.ANSWER, answer=Response(code, remark))


def removing(next_offset: int, most: int) -> Fault:
    """A pull finds nothing: the file of these messages is being deleted, and those from `next_offset` on are there."""
    numbers = {"nextBeginOffset": next_offset, "minOffset": 0, "maxOffset": most, "suggestWhichBrokerId": 0}
    return Fault(
        Kind.ANSWER, answer=Response(ResponseCode.PULL_RETRY_IMMEDIATELY, "MESSAGE_WAS_REMOVING", texts(numbers))
    )


@dataclass
class Faults:
    """What the next requests meet: (code of the request or None for any, fault, times left or None for ever)."""

    _rules: list[tuple[int | None, Fault, int | None]] = field(default_factory=list)

    def add(self, fault: Fault, code: int | None = None, times: int | None = 1) -> None:
        """For the next `times` requests of this code."""
        self._rules.append((code, fault, times))

    def clear(self) -> None:
        self._rules.clear()

    def take(self, code: int) -> Fault | None:
        """The fault of a request that came."""
        for index, (wanted, fault, times) in enumerate(self._rules):
            if wanted in (None, code):
                if times == 1:
                    del self._rules[index]
                elif times is not None:
                    self._rules[index] = (wanted, fault, times - 1)
                return fault
        return None
