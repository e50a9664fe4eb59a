"""What a run is judged by: the checker of `popmq verify`, and rules that need virtual time.

checker    every claim of popmq_verify/judging/checker.py, and popmq check over the store
answered   a call ends by its deadline only if something was wrong meanwhile
woken      a parked Pop does not end empty while a message waits for its group
released   a message is not leased to a caller that had left before it was sent
ends       no task is left when a broker stops, no exception that nobody looked at, no error in the log
hangs      nothing waits for ever
"""

from __future__ import annotations

import logging
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from popmq_server.embedded.fsck.check import check_folder
from popmq_verify.judging.checker import Finding, check
from popmq_verify.judging.facts import Facts, Survey
from popmq_verify.load import scratch
from popmq_verify.load.client import FIFO_TOPIC
from popmq_verify.load.history import NEVER, History, Operation
from tests.simulated.network import SLOW_NS
from tests.simulated.scheduler import S
from tests.simulated.seams import Lease

__all__ = ["Finding"]

#: How long a message may wait while a Pop is parked for it, in ns.
AWAKE_NS = 1 * S
#: How long the end of a call is on its way: behind one slow piece, and in another one.
HEARD_NS = 2 * SLOW_NS[1]


def judged(
    history: History,
    survey: Survey,
    troubles: list[tuple[int, int]],
    muted: list[tuple[int, int]],
    folder: Path,
    popped: set[Lease] | None,
    *,
    patient: bool,
) -> list[Finding]:
    """All that is wrong in a run whose broker has stopped. `popped`: what the engine gave to callers;
    None if a lease may
    have ended before it was answered. `patient`: no caller left. `muted`: when a connection lost what it was given."""
    facts = Facts(history)
    findings = check(Facts(_as_heard(history, muted)), survey) + list(scratch.check(history))
    findings += _answered(history, troubles, patient)
    findings += _woken(facts, troubles)
    findings += _released(facts, popped) if popped is not None else ()
    return findings + [("store", problem) for problem in check_folder(folder)]


def _as_heard(history: History, muted: list[tuple[int, int]]) -> History:
    """The history as the broker hears it: callers that left do so later, at worst when their connection ends."""

    def heard_ns(one: Operation) -> int:
        ends = [ended for begun, ended in muted if begun <= one.returned_ns < ended]
        return max([one.returned_ns + HEARD_NS, *ends])

    operations = [
        replace(one, returned_ns=heard_ns(one)) if one.kind == "pop" and one.how == "unknown" else one
        for one in history.operations
    ]
    return History(operations, history.wall_minus_monotonic_ns)


def _troubled(one: Operation, troubles: list[tuple[int, int]]) -> bool:
    return any(begun < one.returned_ns and one.called_ns < ended for begun, ended in troubles)


def _answered(history: History, troubles: list[tuple[int, int]], patient: bool) -> Iterator[Finding]:
    """answered: each call; a Pop only where no caller's deadline is before the end of its wait."""
    for one in history.operations:
        late = "DEADLINE_EXCEEDED" in one.told.get("code", "") and one.returned_ns - one.called_ns > 4 * S
        if late and (patient or one.kind != "pop") and not _troubled(one, troubles):
            yield "answered", f"{one.kind} of {one.client} at {one.called_ns / S:.6f} had no answer: {one.told}"


def _woken(facts: Facts, troubles: list[tuple[int, int]]) -> Iterator[Finding]:
    """woken: of topics without message groups, by the first delivery of each message to a group."""
    pops = [one for one in facts.history.of("pop") if one.returned_ns - one.called_ns > AWAKE_NS]
    waited = [one for one in pops if one.asked["topic"] != FIFO_TOPIC and not _troubled(one, troubles)]
    sent = {name: one.returned_ns for one in facts.sends() if one.ok for name in one.asked["ids"]}
    for (group, message_id), chain in facts.chains.items():
        first, since_ns = chain[0], sent.get(message_id, NEVER)
        late_ms = first.popped_ms - facts.history.wall_ms(since_ns + AWAKE_NS)
        if late_ms <= 0 or first.attempt > 1:
            continue
        for pop in waited:
            at = pop.asked["group"], pop.asked["topic"]
            if at == (group, first.topic) and pop.called_ns <= since_ns <= pop.returned_ns - AWAKE_NS:
                yield (
                    "woken",
                    f"{message_id} was there from {since_ns / S:.6f} on; a pop of {pop.client} that waits is not woken",
                )
                break


def _released(facts: Facts, popped: set[Lease]) -> Iterator[Finding]:
    """released: a pop with an attempt id keeps its lease, for its next try."""
    unheard = [one.asked for one in facts.history.of("pop") if one.how == "unknown" and one.asked["attempt_id"]]
    excused = {(asked["group"], asked["topic"]) for asked in unheard}
    for (group, message_id), chain in facts.chains.items():
        for one in chain if (group, chain[0].topic) not in excused else ():
            missing = [k for k in range(1, one.attempt) if (group, one.topic, *one.position, k) not in popped]
            if missing:
                yield (
                    "released",
                    f"{message_id} in {group}: attempt {missing[0]} was leased, and the engine gave it to nobody",
                )


class Logged(logging.Handler):
    """The errors in the logs of a run, in place of printing them."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.errors: list[str] = []
        self._loggers = [logging.getLogger(name) for name in ("popmq", "popmq_http2", "asyncio")]

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.ERROR:
            error = record.exc_info[1] if record.exc_info else None
            self.errors.append(record.getMessage() + (f": {told(error)}" if error else ""))

    def __enter__(self) -> Logged:
        self._before = [(one.propagate, one.handlers, one.level) for one in self._loggers]
        for one in self._loggers:
            one.propagate, one.handlers = False, [self]
            one.setLevel(logging.WARNING)
        return self

    def __exit__(self, *_: Any) -> None:
        for one, (propagate, handlers, level) in zip(self._loggers, self._before, strict=True):
            one.propagate, one.handlers = propagate, handlers
            one.setLevel(level)


def of_logs(logged: Logged, counts: Counter[str]) -> list[Finding]:
    """ends: the log has errors only if the disk failed."""
    return [] if counts["sick_disk"] or counts["kill"] else [("ends", f"logged: {said}") for said in logged.errors]


def told(error: BaseException) -> str:
    """An exception with its place."""
    return "".join(traceback.format_exception(error)[-6:]).strip()
