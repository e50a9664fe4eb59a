"""Runs scenarios, several at a time: they mostly wait.

Runs(…).begin(client, scenario) ─▶ a thread: build the driver, start what it needs, run ─▶ Result
"""

import threading
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop import builds
from tests.interop.builds import NoTools
from tests.interop.scenarios import OPERATOR, Scenario
from tests.interop.targets import PopMQ, Target
from tests.interop.world import World

#: Scenarios at a time. They measure seconds, not milliseconds, on machines with two cores.
AT_ONCE = 5


@dataclass(frozen=True)
class Result:
    """`outcome` when it ran to its end; `skipped` says why it did not run; `failed` is a traceback."""

    outcome: dict[str, Any] | None = None
    skipped: str = ""
    failed: str = ""

    def word(self, expected: dict[str, Any]) -> str:
        """For a table: ok, differs, failed, or – where there was nothing to run."""
        if self.skipped:
            return "–"
        return "failed" if self.failed else "ok" if self.outcome == expected else "differs"


class Runs:
    """One server for all scenarios that do not need their own. `close` ends what was started."""

    def __init__(self, folder: Path, given: Target | None = None, at_once: int = AT_ONCE) -> None:
        self._folder, self._given = folder, given
        self._threads = ThreadPoolExecutor(at_once)
        self._lock = threading.Lock()
        self._shared: PopMQ | None = None
        self._can: dict[str, set[str]] = {}

    def begin(self, client: str, scenario: Scenario) -> Future[Result]:
        return self._threads.submit(self._run, client, scenario)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        if self._shared is not None:
            self._shared.close()

    def _run(self, client: str, scenario: Scenario) -> Result:
        try:
            command = builds.command(client)
            if self._given is not None:
                return self._in_world(client, command, scenario, self._given)
            if not scenario.own:
                return self._in_world(client, command, scenario, self._popmq())
            target = self._own(client, scenario).start()
            try:
                return self._in_world(client, command, scenario, target)
            finally:
                target.close()
        except NoTools as missing:
            return Result(skipped=str(missing))
        except Exception:
            return Result(failed=traceback.format_exc())

    def _in_world(self, client: str, command: list[str], scenario: Scenario, target: Target) -> Result:
        missing = scenario.wants - target.has
        if missing:
            return Result(skipped=f"the server has no {', '.join(sorted(missing))}")
        world = World(client, command, target, self._folder / "drivers" / scenario.name)
        try:
            lacks = scenario.needs - self._abilities(client, world)
            if lacks:
                return Result(skipped=f"the client has no {', '.join(sorted(lacks))}")
            return Result(scenario.run(world))
        finally:
            world.close()

    def _own(self, client: str, scenario: Scenario) -> PopMQ:
        data = self._folder / f"{client}-{scenario.name}"
        if not scenario.keys:
            return PopMQ(data)
        keys = data.with_suffix(".toml")
        keys.touch(mode=0o600)
        keys.write_text(scenario.keys)
        return PopMQ(data, "--access-keys", str(keys), operator=OPERATOR)

    def _abilities(self, client: str, world: World) -> set[str]:
        """Asked of one process for all."""
        with self._lock:
            if client not in self._can:
                self._can[client] = world.start().can
            return self._can[client]

    def _popmq(self) -> PopMQ:
        with self._lock:
            if self._shared is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._shared = PopMQ(self._folder / "shared").start()
            return self._shared
