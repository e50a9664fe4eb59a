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
from tests.interop.harness import Driver
from tests.interop.scenarios import Scenario
from tests.interop.servers import Servers
from tests.interop.targets import Target
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
    """Scenarios on servers, which `close` ends."""

    def __init__(self, folder: Path, servers: Servers, at_once: int = AT_ONCE) -> None:
        self._folder, self._servers = folder, servers
        self._threads = ThreadPoolExecutor(at_once)
        self._lock = threading.Lock()
        self._can: dict[str, set[str]] = {}

    def begin(self, client: str, scenario: Scenario) -> Future[Result]:
        return self._threads.submit(self._run, client, scenario)

    def close(self) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._servers.close()

    def _run(self, client: str, scenario: Scenario) -> Result:
        try:
            command = builds.command(client)
            if missing := scenario.wants - self._servers.has:
                return Result(skipped=f"the server has no {', '.join(sorted(missing))}")
            if lacks := scenario.needs - self._abilities(client, command):
                return Result(skipped=f"the client has no {', '.join(sorted(lacks))}")
            return self._on_a_server(client, command, scenario)
        except NoTools as missing_tools:
            return Result(skipped=str(missing_tools))
        except Exception:
            return Result(failed=traceback.format_exc())

    def _on_a_server(self, client: str, command: list[str], scenario: Scenario) -> Result:
        if not scenario.own:
            return self._in_world(client, command, scenario, self._servers.shared())
        target = self._servers.own(f"{client}-{scenario.name}", scenario.keys)
        try:
            return self._in_world(client, command, scenario, target)
        finally:
            target.close()

    def _in_world(self, client: str, command: list[str], scenario: Scenario, target: Target) -> Result:
        world = World(client, command, target, self._folder / "drivers" / scenario.name)
        try:
            return Result(scenario.run(world))
        finally:
            world.close()

    def _abilities(self, client: str, command: list[str]) -> set[str]:
        """Asked of one process for all."""
        with self._lock:
            if client not in self._can:
                with Driver(command, self._folder / f"{client}.log", self._folder / "home", {}) as driver:
                    self._can[client] = driver.can
            return self._can[client]
