"""What users of the official clients do, one function each. An outcome is plain data, the same for all.

    @scenario(expects={…}, needs=("push",)) ─▶ SCENARIOS[name] ─▶ tests/interop/test_clients.py, tests/interop/record.py

Facts that differ from run to run (ids, times) are compared inside the scenario; the outcome says whether they were
right.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from tests.interop.world import World

Outcome = dict[str, Any]
Run = Callable[[World], Outcome]


@dataclass(frozen=True)
class Scenario:
    """`needs` are abilities of the client, `wants` features of the server. `but` replaces parts of what is expected of
    a client whose own ways make the difference, each with its reason in the scenario's docstring."""

    name: str
    run: Run
    expects: Outcome
    needs: frozenset[str]
    wants: frozenset[str]
    but: dict[str, Outcome] = field(default_factory=dict)
    long: bool = False
    own: bool = False
    keys: str = ""

    def expected(self, client: str) -> Outcome:
        return {**self.expects, **self.but.get(client, {})}


#: The access key that makes topics and groups where keys are asked for.
OPERATOR = ("operator", "operators-secret")
SCENARIOS: dict[str, Scenario] = {}


def scenario(
    expects: Outcome,
    needs: tuple[str, ...] = (),
    wants: tuple[str, ...] = (),
    but: dict[str, Outcome] | None = None,
    long: bool = False,
    own: bool = False,
    keys: str = "",
) -> Callable[[Run], Run]:
    """`long`: over half a minute by its nature, so only `make interop` runs it. `own`: on a server of its own, which
    asks for `keys` if there are any (its file of access keys; OPERATOR has to be one of them)."""

    def register(run: Run) -> Run:
        name = run.__name__
        SCENARIOS[name] = Scenario(name, run, expects, frozenset(needs), frozenset(wants), but or {}, long, own, keys)
        return run

    return register


for _module in (
    "sending",
    "filters",
    "order",
    "later",
    "leases",
    "push",
    "outages",
    "refusals",
    "access",
    "lite",
    "faces",
):
    import_module(f"{__name__}.{_module}")
