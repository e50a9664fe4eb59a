"""Counts the function calls of an action, a measure of work that does not depend on the machine.

A cost that must not grow with what is at rest is tested at two sizes ten times apart: the counts are compared, never
times. Every Python function and every C function counts one, so each key that a cursor of LMDB visits is in the number.
"""

import sys
from collections.abc import Callable
from typing import Any

import pytest


def calls(action: Callable[[], Any]) -> int:
    """How many Python and C functions the action called on this thread, itself included."""
    count = 0

    def profile(_: Any, event: str, __: Any) -> None:
        nonlocal count
        if event in ("call", "c_call"):
            count += 1

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count - 1  # the call of sys.setprofile that ends the count


def grows(small: Callable[[], Any], large: Callable[[], Any]) -> float:
    """Calls of the second action divided by calls of the first."""
    return calls(large) / calls(small)


def calls_of_pieces(monkeypatch: pytest.MonkeyPatch, job: type[Any]) -> list[int]:
    """The calls of each piece of the jobs of this class in brokers that are made later, in a list that grows."""
    found: list[int] = []
    run = job.run

    def counted(self: Any, tx: Any) -> Any:
        more: list[Any] = []
        found.append(calls(lambda: more.append(run(self, tx))))
        return more[0]

    monkeypatch.setattr(job, "run", counted)
    return found
