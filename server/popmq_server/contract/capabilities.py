"""Capabilities: the parts of the contract that an engine may lack.

An engine says what it lacks (`Engine.info`), and what needs it is refused before it reaches the engine. The rest of the
contract, sending, pops, acks, topics and groups, is served by every engine.

protocols/ ─▶ Guarded ─▶ limited(engine) ─▶ engine        UNSUPPORTED, with what to use instead
"""

from collections.abc import AsyncGenerator, Callable
from typing import Any, NamedTuple, cast

from popmq_server.contract import commands as do
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import EngineInfo
from popmq_server.contract.commands.queries import A, Query
from popmq_server.contract.commands.store import Piece
from popmq_server.contract.engine import BasicEngine, Engine
from popmq_server.errors import Refused


class Capability(NamedTuple):
    """`what`: its calls, for a message to people. `instead`: what to use where it is missing.

    `parts`: the commands, the queries and the methods of Engine that need it.
    """

    what: str
    instead: str
    parts: tuple[type | str, ...]


CAPABILITIES: dict[str, Capability] = {
    "owners": Capability(
        "durable owners with sealed tokens",
        "Pull and UpdateOffsets; a range of offsets can be read again",
        (do.AttachOwner, do.RenewOwner, do.AckUpTo, do.ReleaseOwner, queries.Owners),
    ),
    "stages": Capability(
        "batches of a sink",
        "Send, with message ids that follow from the rows, so that readers recognize a repeat",
        (do.Stage, do.CommitBatch, do.DropStages),
    ),
    "lite": Capability("lite topics", "a FIFO topic with message groups, or a topic for each", (do.SyncLite,)),
    "recall": Capability(
        "recalling delayed messages", "let the consumer skip messages that are no longer valid", (do.Recall,)
    ),
    "transactions": Capability(
        "transactions with check-back", "Send after the local transaction has committed", (do.EndTransaction, "join")
    ),
    "pull": Capability(
        "reading by offset",
        "Pop and Ack",
        (do.Pull, "pull", do.UpdateOffsets, do.QueryOffsets, do.SendBack, do.SetConsumeMode, "set_consume_mode"),
    ),
    "queue_locks": Capability("locks of queues", "a FIFO topic with message groups", ("lock_queues", "unlock_queues")),
    "reset_offsets": Capability(
        "moving a group's position", "a new group with the wanted start", (do.ResetOffsets, do.CloneOffsets, "move")
    ),
    "wait_available": Capability("waiting without a lease", "Pop with wait_ms", (do.Available, "wait_available")),
    "peek": Capability("looking at messages without a lease", "Pull without a group", ("peek",)),
    "browse": Capability("reading messages by position", "Pull without a group", (queries.Browse,)),
    "search": Capability(
        "reading messages of all queues by time, and searching them",
        "Browse the queues one by one",
        ("search",),
    ),
    "look_up": Capability("finding messages by id and key", "Browse the topic", ("look_up",)),
    "why": Capability("the history of a message", "LookUp, and GetStats for the position of the group", ("why",)),
    "list_leases": Capability("lists of leases", "GetStats counts them", (queries.Leases,)),
    "end_lease": Capability("ending a lease early", "wait for its deadline", (do.EndLease,)),
    "list_delayed": Capability("lists of delayed messages", "GetStats counts them", (queries.Delayed,)),
    "list_transactions": Capability("lists of half messages", "GetStats counts them", (queries.Transactions,)),
    "message_groups": Capability(
        "lists of message groups, and resuming them",
        "GetStats counts waiting messages; a new attempt follows each backoff",
        (queries.MessageGroups, do.ResumeMessageGroup),
    ),
    "filters": Capability("filters of groups", "name the filter in each Pop", (do.SetFilter,)),
    "redrive": Capability("delivering dead letters again", "pop the dead-letter topic, and Send", ("redrive",)),
    "discard": Capability("removing dead letters", "pop the dead-letter topic, and Ack", ("discard",)),
    "dead_letter_reasons": Capability(
        "counts of dead letters by reason", "Browse the dead-letter topic", ("dead_letter_reasons",)
    ),
    "purge": Capability("emptying a topic", "delete and create it, or shorten its retention", (do.PurgeTopic,)),
    "schedules": Capability(
        "schedules",
        "a cron of the machine that runs `popmq send`",
        (do.CreateSchedule, do.DeleteSchedule, do.PauseSchedule, do.RunSchedule, queries.Schedules),
    ),
    "backup": Capability("backups of the store", "the backup of the engine's own storage", ("backup",)),
    "max_size": Capability("a limit of the store's size", "the retention of topics", (do.SetMaxSize,)),
}

#: Which capability a command, a query or a method of Engine needs.
NEEDED: dict[type | str, str] = {part: name for name, each in CAPABILITIES.items() for part in each.parts}


def needed(asked: Any) -> str:
    """The capability that a command or query needs; "" for what every engine serves."""
    if isinstance(asked, do.Pop):
        return "owners" if asked.token is not None else "lite" if asked.lite is not None else ""
    return NEEDED.get(type(asked), "")


def unsupported(name: str, engine: str) -> Refused:
    """The refusal of what needs a missing capability."""
    missing = CAPABILITIES[name]
    return Refused("UNSUPPORTED", f"the engine {engine!r} has no {missing.what}", action=missing.instead)


def limited(engine: BasicEngine) -> Engine:
    """The engine itself if it lacks no capability, else a wrapper that refuses calls that need a missing one."""
    return cast(Engine, _Limited(engine) if engine.info().lacking else engine)


class _Limited:
    """Passes all other methods to the engine. The engine may lack the methods of a capability that it does not have."""

    def __init__(self, engine: BasicEngine) -> None:
        self._engine = cast(Engine, engine)  # a method that it lacks is refused, and never called
        self._info: EngineInfo = engine.info()

    def __getattr__(self, method: str) -> Any:
        name = NEEDED.get(method, "")
        return self._refusing(name) if name in self._info.lacking else getattr(self._engine, method)

    def _refusing(self, name: str) -> Callable[..., Any]:
        async def refuse(*_: Any, **__: Any) -> Any:
            raise unsupported(name, self._info.engine)

        return refuse

    def _check(self, asked: Any) -> None:
        if (name := needed(asked)) in self._info.lacking:
            raise unsupported(name, self._info.engine)

    async def execute(self, command: Any) -> Any:
        """Raises Refused UNSUPPORTED for a command that needs a missing capability."""
        self._check(command)
        return await self._engine.execute(command)

    async def ask(self, query: Query[A]) -> A:
        """Raises Refused UNSUPPORTED for a query that needs a missing capability."""
        self._check(query)
        return await self._engine.ask(query)

    async def pop(self, command: do.Pop, wait_ms: int) -> do.Popped:
        """Raises Refused UNSUPPORTED for a token or lite topics if the engine lacks them."""
        self._check(command)
        return await self._engine.pop(command, wait_ms)

    async def backup(self, bytes_per_s: int) -> AsyncGenerator[Piece, None]:
        """Raises Refused UNSUPPORTED when the first piece is taken."""
        if "backup" in self._info.lacking:
            raise unsupported("backup", self._info.engine)
        async for piece in self._engine.backup(bytes_per_s):
            yield piece
