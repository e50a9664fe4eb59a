"""On which server a scenario runs: one for all, and one of its own for each that stops it or asks for access keys.

servers("gateway", folder) ─▶ Servers ─▶ shared(), own(name, keys) ─▶ Target
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tests.interop.doors import Gateway, Proxy, Rig
from tests.interop.scenarios import OPERATOR
from tests.interop.targets import PopMQ, Running, Target, running

EMBEDDED, GATEWAY, PROXY = "embedded", "gateway", "proxy"


class Servers(Protocol):
    """`has`: as each of its targets. `close` ends what is still running."""

    has: frozenset[str]

    def shared(self) -> Target: ...

    def own(self, name: str, keys: str) -> Target:
        """Started. `keys`: its file of access keys, "" for none. Whoever asked for it closes it."""

    def close(self) -> None: ...


class Started:
    """Starts a target for each name; the one for all at its first use."""

    def __init__(self, has: frozenset[str], make: Callable[[str, str], Target], close: Callable[[], None]) -> None:
        """`make`: a target that is not started, by its name and its access keys."""
        self.has, self._make, self._close = has, make, close
        self._lock = threading.Lock()
        self._shared: Target | None = None

    def shared(self) -> Target:
        with self._lock:
            if self._shared is None:
                self._shared = self._make("shared", "").start()
            return self._shared

    def own(self, name: str, keys: str) -> Target:
        return self._make(name, keys).start()

    def close(self) -> None:
        if self._shared is not None:
            self._shared.close()
        self._close()


class Given:
    """A server that runs already: the only one there is."""

    def __init__(self, target: Running) -> None:
        self._target, self.has = target, target.has

    def shared(self) -> Target:
        return self._target

    def own(self, name: str, keys: str) -> Target:
        return self._target

    def close(self) -> None:
        """Whoever started it ends it."""


def servers(kind: str, folder: Path) -> Servers:
    """`kind`: embedded, gateway or proxy; a server that the environment names comes first. Raises NoTools."""
    folder.mkdir(parents=True, exist_ok=True)
    if given := running():
        return Given(given)
    if kind == EMBEDDED:
        return Started(PopMQ.has, lambda name, keys: _embedded(folder / name, keys), lambda: None)
    rig = Rig(folder / "rig")
    if kind == PROXY:
        return Started(Proxy.has, lambda name, _: rig.proxy(name), rig.close)
    return Started(Gateway.has, lambda name, keys: _gateway(rig, folder, name, keys), rig.close)


def _embedded(data: Path, keys: str) -> PopMQ:
    if not keys:
        return PopMQ.embedded(data)
    return PopMQ.embedded(data, *_access_keys(data.with_suffix(".toml"), keys), operator=OPERATOR)


def _gateway(rig: Rig, folder: Path, name: str, keys: str) -> Gateway:
    if not keys:
        return rig.gateway(name)
    return rig.gateway(name, *_access_keys(folder / f"{name}.toml", keys), operator=OPERATOR)


def _access_keys(file: Path, keys: str) -> tuple[str, str]:
    """The flag of a new file."""
    file.touch(mode=0o600)
    file.write_text(keys)
    return "--access-keys", str(file)
