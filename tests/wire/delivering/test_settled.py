"""What `popmq serve` does once it is ready, before it serves."""

from __future__ import annotations

import asyncio
import gc
import pathlib
import subprocess
import sys
from types import TracebackType
from typing import Any

import pytest

from popmq_server import __main__ as program
from popmq_server.contract.life import Words
from popmq_server.errors import CommitFailed
from popmq_server.process import running, serving
from popmq_server.settings import parse

#: Modules of a started broker without TLS, SQL filters and a console: each costs some 0.5 ms of the start.
MODULES_MAX = 720
TLS_AND_SQL = {"cryptography", "lark", "starlette", "uvicorn", "jinja2"}
STARTED = """
import gc, os, sys
from popmq_server import __main__ as program

def settle():
    rooms = {".".join(name.split(".")[:2]) for name in sys.modules}
    print(len(sys.modules), gc.isenabled(), sorted(rooms & {UNWANTED}), flush=True)
    os._exit(0)

program.settle = settle
program.main(sys.argv[1:])
"""


class Failing:
    """Serves nothing: its first commit has failed already."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.port, self.certificate, self.left_out = 0, None, list[Any]()
        self.words = Words("a worker", "it failed", "nothing is lost", "all is closed")
        self.failed = asyncio.get_running_loop().create_future()
        self.failed.set_result(CommitFailed("no disk"))

    async def __aenter__(self) -> Failing:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Nothing is open."""

    async def alive(self) -> bool:
        return True

    async def waits_for(self) -> str:
        return ""

    def reload(self) -> list[str]:
        return []


@pytest.mark.slow
def test_a_full_collection_of_garbage_does_not_walk_over_what_the_start_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path
) -> None:
    monkeypatch.setattr(serving, "Serving", Failing)
    before = gc.get_threshold()
    gc.disable()  # as `main` does before
    try:
        assert asyncio.run(program._serve([], parse(["--data", str(tmp_path)]))) == running.EXIT_IO
        assert gc.get_freeze_count() > 10_000
        assert gc.isenabled(), "a broker that never collects garbage grows until it is killed"
        assert gc.get_threshold()[0] == running.COLLECT_AFTER, "collections for each commit would find nothing"
    finally:
        gc.enable()
        gc.set_threshold(*before)
        gc.unfreeze()


def test_a_start_that_fails_leaves_the_collector_on(tmp_path: pathlib.Path) -> None:
    """For programs that call `main` themselves."""
    file = tmp_path / "no-folder"
    file.touch()
    code = "import gc, sys; from popmq_server.__main__ import main; print(main(sys.argv[1:]), gc.isenabled())"
    command = [sys.executable, "-c", code, "--data", str(file), "--port", "0", "--tls-port", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split() == [str(running.EXIT_CONFIG), "True"], done.stderr


def started(unwanted: set[str], *flags: str) -> tuple[int, str, str]:
    """Of a start: how many modules are loaded, whether garbage is collected, which of `unwanted` are loaded."""
    code = STARTED.replace("UNWANTED", f"*{sorted(unwanted)}")
    ports = ("--port", "0", "--tls-port", "0", "--http-port", "0", "--metrics-port", "0")
    done = subprocess.run(
        [sys.executable, "-c", code, *flags, *ports], capture_output=True, text=True, timeout=60, check=False
    )
    modules, collects, loaded = done.stdout.split(maxsplit=2)
    return int(modules), collects, loaded.strip()


@pytest.mark.slow
def test_a_start_loads_neither_what_only_tls_sql_filters_and_keda_need_nor_many_modules(
    tmp_path: pathlib.Path,
) -> None:
    modules, collects, loaded = started({*TLS_AND_SQL, "popmq_proto.keda"}, "--data", str(tmp_path / "data"))
    assert (collects, loaded) == ("False", "[]")
    assert modules <= MODULES_MAX


@pytest.mark.slow
def test_a_start_loads_one_engine_and_an_embedded_broker_no_client_of_other_brokers(tmp_path: pathlib.Path) -> None:
    cluster, embedded = {"popmq_remoting", "popmq_server.cluster"}, {"lmdb", "popmq_server.embedded"}
    assert started(cluster | embedded, "--data", str(tmp_path / "data"))[2] == str(sorted(embedded))
    gateway = ("--engine", "rocketmq", "--namesrv", "127.0.0.1:1")
    modules, _, loaded = started(cluster | embedded | TLS_AND_SQL | {"statistics"}, *gateway)
    assert (loaded, modules <= MODULES_MAX) == (str(sorted(cluster)), True)
