"""Talks to a driver program: JSON lines to it, answers and events from it (the protocol: README.md).

call("send", …) ─▶ stdin ─▶ [driver] ─▶ stdout ─▶ reader thread ─▶ the call's answer, or `events`
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any

Line = dict[str, Any]


class ClientError(Exception):
    """What the client raised: the status code if it shows one, the class of its error, and its words."""

    def __init__(self, code: int | None, kind: str, message: str) -> None:
        super().__init__(f"{kind} {code or ''} {message}")
        self.code, self.kind, self.message = code, kind, message


class DriverDied(Exception):
    """The program ended while somebody waited for it."""


class Driver:
    """One driver process. Its calls are blocking and may be made by several threads at once; `begin` does not wait."""

    def __init__(self, command: list[str], log: Path, home: Path, environment: dict[str, str]) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.log = log
        # Clients write their own logs into the home of their user.
        environment = {**os.environ, "HOME": str(home), "GRPC_VERBOSITY": "NONE", **environment}
        with log.open("a") as stderr:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr, env=environment, text=True
            )
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Line]] = {}
        self._changed = threading.Condition(threading.RLock())
        self._events: list[Line] = []
        self._ended = False
        self._writes = threading.Lock()
        threading.Thread(target=self._read, daemon=True).start()
        self.hello = self.wait_for(lambda events: next((e for e in events if e["event"] == "hello"), None), 60)

    @property
    def can(self) -> set[str]:
        return set(self.hello["can"])

    def begin(self, do: str, **fields: Any) -> Future[Line]:
        """Sends a command; its answer, or ClientError, arrives in the future."""
        number, future = next(self._numbers), Future[Line]()
        with self._changed:
            if self._ended:
                raise DriverDied(self.last_words())
            self._waiting[number] = future
        with self._writes:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps({"id": number, "do": do, **fields}) + "\n")
            self._process.stdin.flush()
        return future

    def call(self, do: str, timeout_s: float = 60, **fields: Any) -> Line:
        """A command and its answer. Raises ClientError, DriverDied, TimeoutError."""
        try:
            return self.begin(do, **fields).result(timeout_s)
        except TimeoutError:
            raise TimeoutError(f"no answer to {do} {fields} in {timeout_s} s\n{self.last_words()}") from None

    def events(self, kind: str, name: str | None = None) -> list[Line]:
        """Those of one kind, of one client or all, in the order in which they came."""
        with self._changed:
            return [e for e in self._events if e["event"] == kind and name in (None, e.get("name"))]

    def wait_for(self, look: Callable[[list[Line]], Any], timeout_s: float) -> Any:
        """The first true result of `look` on the events; its last one when the time is over."""
        until = time.monotonic() + timeout_s
        with self._changed:
            while True:
                seen = look(self._events)
                left = until - time.monotonic()
                if seen or self._ended or left <= 0:
                    break
                self._changed.wait(left)
        assert seen or not self._ended, f"the driver ended: {self.last_words()}"
        return seen

    def heard(self, kind: str, name: str | None, count: int, timeout_s: float) -> list[Line]:
        """Events of one kind once there are `count` of them or the time is over."""
        self.wait_for(lambda _: len(self.events(kind, name)) >= count, timeout_s)
        return self.events(kind, name)

    def kill(self) -> None:
        """SIGKILL: the client cannot close its connections in order."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """Ends the process, whatever state its clients are in."""
        self.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # a command was on its way
                pass

    def last_words(self, lines: int = 20) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for text in self._process.stdout:
                self._take(json.loads(text))
        except ValueError:  # the pipe was closed, or half a line of a killed process
            pass
        with self._changed:
            self._ended = True
            for future in self._waiting.values():
                future.set_exception(DriverDied(self.last_words()))
            self._waiting.clear()
            self._changed.notify_all()

    def _take(self, line: Line) -> None:
        with self._changed:
            if "event" in line:
                self._events.append(line)
                self._changed.notify_all()
                return
            future = self._waiting.pop(line["id"])
        if "error" in line:
            error = line["error"]
            future.set_exception(ClientError(error.get("code"), error["kind"], error["message"]))
        else:
            future.set_result(line["ok"])

    def __enter__(self) -> Driver:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
