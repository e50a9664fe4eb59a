"""What an engine is asked to do: commands, which may change something, and queries, which only read.

A class says once what everybody has to know about it:

    class Ack(Command[Acked], Listed["Ack"], lane=LANE_ACK, entries="handles"):
        group: str                                     its fields; it becomes a frozen dataclass
        handles: tuple[str, ...]

        def needs(self) -> Needs:                      the rights that a key needs for it
            return receives_from(self.group)

    await engine.execute(Ack("g", handles))            has the type Acked
    Ack.by(lease.ack)                                  its handler in an engine: takes an Ack, returns an Acked

A type checker refuses a class without a lane, without `needs`, and without Listed (commands/listed.py), which refuses
one that is not in the list of all, EveryOperation (commands/__init__.py). The embedded engine refuses a member of that
list without a handler (loop/broker.py).

See docs/decisions/0049-commands-declared-once.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Never, Self, TypeVar, dataclass_transform

from popmq_server.contract.capabilities import Capability
from popmq_server.contract.rights import NOBODY, Caller, Needs

#: The answer of an operation.
A = TypeVar("A")
A_co = TypeVar("A_co", covariant=True)
H_contra = TypeVar("H_contra", contravariant=True)
H1 = TypeVar("H1")
H2 = TypeVar("H2")
#: What the handlers of an engine get beside the operation.
E = TypeVar("E")

#: The order within a commit batch: first what frees, then what stores, then what delivers: Pops never delay an Ack.
#: An operation that reads what others of its batch store belongs to the last one.
LANE_ACK, LANE_SEND, LANE_POP = 0, 1, 2


class Handled(Generic[H_contra]):
    """Handlers by class of operation. Its type names the classes: a table of more of them is also one of fewer."""

    def __init__(self, handlers: dict[type[Operation[object]], Callable[..., object]]) -> None:
        self.handlers = handlers

    def __or__(self: Handled[H1], other: Handled[H2]) -> Handled[H1 | H2]:
        return Handled(self.handlers | other.handlers)


class Declared:
    """What a class of operations says of itself."""

    #: LANE_ACK, LANE_SEND or LANE_POP.
    lane: ClassVar[int]
    #: Whether it is refused as a whole if the store has no room.
    needs_room: ClassVar[bool]
    #: The fields that have its entries, if it may have many. A field or property `bytes` has their size.
    entries_fields: ClassVar[tuple[str, ...]]
    #: What an engine must have for it; None: every engine has it.
    capability: ClassVar[Capability | None]

    @abstractmethod
    def needs(self) -> Needs:
        """The rights that the caller needs."""
        return NOBODY

    @abstractmethod
    def _is_listed(self) -> None:
        """Written in the mark of a list: without it no object of the class can be made."""

    def needed(self) -> tuple[Capability, ...]:
        """The capabilities that this one needs; a class may look into its fields."""
        return () if self.capability is None else (self.capability,)

    def takes_room(self) -> bool:
        """Whether this one is refused if the store has no room."""
        return self.needs_room

    def narrowed(self, caller: Caller) -> Self:
        """The same, limited to what the caller's key may reach, where only the store knows. Not called without keys."""
        return self


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class Operation(Declared, Generic[A_co]):
    """A command or a query, whose answer is an A."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # Made half as fast, an object would be frozen at run time too; type checkers see to it.
        dataclass(unsafe_hash=True)(cls)

    @classmethod
    def by(cls, handler: Callable[[E, Self], A_co]) -> Handled[Self]:
        """The handler that answers it."""
        return Handled({cls: handler})

    @classmethod
    def awaited_by(cls, handler: Callable[[E, Self], Coroutine[object, object, A_co]]) -> Handled[Self]:
        """The coroutine that answers it."""
        return Handled({cls: handler})

    @classmethod
    def begun_by(cls, handler: Callable[[E, Self], object]) -> Handled[Never]:
        """A handler whose answer is only the beginning: another one, by this or by `awaited_by`, has the answer."""
        return Handled({cls: handler})

    @classmethod
    def followed_by(cls, call: Callable[[E, Self], object]) -> Handled[Never]:
        """What is called after it was answered."""
        return Handled({cls: call})


class Command(Operation[A_co]):
    """May change something. One commit has all of it, or none; or an engine does it piece by piece."""

    def __init_subclass__(
        cls, *, lane: int, needs_room: bool = False, entries: str = "", capability: Capability | None = None
    ) -> None:
        super().__init_subclass__()
        cls.lane, cls.needs_room, cls.capability = lane, needs_room, capability
        cls.entries_fields = tuple(entries.split())


class Query(Operation[A_co]):
    """Changes nothing. Its answer shows one consistent state; that of a list, one for each piece."""

    def __init_subclass__(cls, *, entries: str = "", capability: Capability | None = None) -> None:
        super().__init_subclass__()
        cls.lane, cls.needs_room, cls.capability = LANE_POP, False, capability
        cls.entries_fields = tuple(entries.split())

    def shown(self, answer: A_co, caller: Caller) -> A_co:  # type: ignore[misc]  # gets only the answer to this query
        """The part of the answer that the caller's key may see."""
        return answer
