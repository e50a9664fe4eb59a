"""Each call that writes fails, once or from then on: no OK that is not durable, nothing lost, and told why."""

import errno
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc_status import rpc_status

from harness.broker_process import ROOT
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.options import JOURNAL
from popmq_verify.powercut import compile_shim, watched
from tests.crash.conftest import Scale
from tests.crash.store import broken_invariants

#: How a process ends that cannot go on: with a sentence.
ENDINGS = ("StartError: ", "CommitFailed: ")


@pytest.mark.chaos
def test_a_call_that_fails_loses_nothing_is_reported_and_heals(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    environment = os.environ | {
        "LD_PRELOAD": str(compile_shim(tmp_path)),
        "POPMQ_CUT_LOG": str(tmp_path / "cut.log"),
        "POPMQ_CUT_FOLDER": str(tmp_path / "data"),
    }
    command = [sys.executable, "-m", "tests.crash.failing_calls", str(tmp_path), str(scale.pick(short=18, whole=1))]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=ROOT, env=environment).stdout
    seen = [json.loads(line) for line in lines.splitlines()]
    runs, backups = [run for run in seen if "calls" in run], [run for run in seen if "bytes" in run]
    kinds = Counter(_kind(run) for run in runs)
    show("\n".join(f"{number:7,}  {kind}" for kind, number in kinds.most_common()))

    assert [run for run in seen if run["findings"]] == []
    assert runs[0] | {"calls": 0} == {
        "n": 0, "error": "EIO", "ever": False, "findings": [], "refused": [], "ended": "", "healed": True, "calls": 0
    }  # fmt: skip
    for run in runs:
        assert run["ended"].startswith(ENDINGS) or (not run["ended"] and run["healed"]), run
        assert set(run["refused"]) <= {"STORAGE_FULL", "UNAVAILABLE"}, run
    # A disk that is full for one call ends no broker, but for a start and where LMDB gives its file up.
    full = [run for run in runs if run["error"] == "ENOSPC" and not run["ever"]]
    assert all(
        not run["ended"]
        or run["ended"].startswith("StartError")
        or "PANIC" in run["ended"]
        or "last sync" in run["ended"]
        for run in full
    )
    assert any("STORAGE_FULL" in run["refused"] and run["healed"] for run in full)
    assert all(bool(run["bytes"]) != bool(run["failed"]) for run in backups), backups
    assert {bool(run["failed"]) for run in backups} == {True, False}


def _kind(run: dict[str, object]) -> str:
    how = f"{run['error']}{' from then on' if run['ever'] else ' once'}"
    ended = str(run["ended"]).partition(":")[0]
    refused = ", ".join(sorted(set(run["refused"])))  # type: ignore[call-overload]
    return f"{how}: {f'ends with {ended}' if ended else 'served on'}{f', refused {refused}' if refused else ''}"


def send(stubs: Stubs, name: str) -> int:
    """Sends a message; returns the code that it is refused with, or 0."""
    try:
        stubs.broker.Send(pb.SendRequest(topic="t", messages=[pb.Message(message_id=name, body=b"x")]), timeout=10)
    except grpc.RpcError as error:
        info, status = pb.ErrorInfo(), rpc_status.from_call(error)  # type: ignore[arg-type]  # it is a Call too
        assert status is not None
        assert status.details[0].Unpack(info)
        return info.code
    return 0


@pytest.mark.process
@pytest.mark.parametrize("ever", [False, True], ids=["once", "from then on"])
def test_a_disk_that_says_it_is_full_refuses_sends_and_ends_no_broker(tmp_path: Path, ever: bool) -> None:
    """As with a quota: there is room on the disk, but not for this user."""
    broker, fails = watched(tmp_path), tmp_path / "fails"
    # The first call of a commit, which writes data: where the meta page cannot be written, LMDB gives its file up.
    broker.environment |= {"POPMQ_CUT_FAIL": f"1,{errno.ENOSPC},{int(ever)}", "POPMQ_CUT_FAIL_FROM": str(fails)}
    with broker, Stubs(broker.endpoint) as stubs:
        stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="t", queues=1)))
        codes = [send(stubs, f"m{number}") for number in range(10)]
        fails.touch()
        codes += [send(stubs, f"m{number}") for number in range(10, 40)]
        answered = [f"m{number}" for number, code in enumerate(codes) if not code]
        # A lone command that a journal refused goes to the data file, which the disk takes.
        first = ever or JOURNAL == "off"
        assert set(codes) <= {0, pb.STORAGE_FULL}
        assert [bool(code) for code in codes] == [False] * 10 + [first] + [ever] * 29
        page = stubs.admin.Browse(pb.BrowseRequest(topic="t", max_messages=100))
        assert [delivery.message.message_id for delivery in page.deliveries] == answered
        assert broker.stop() == (74 if ever else 0), broker.log_end()
    assert "Traceback" not in broker.log.read_text()
    assert broken_invariants(broker.data) == []
