"""Lines of the log that no reader takes stop no broker, and are counted."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import popmq
from harness.broker_process import ROOT, own_port
from popmq_server import line_writer
from popmq_server.line_writer import QUEUED_BYTES_MAX, LineWriter

LINE = "x" * 1023 + "\n"


def notice(count: int) -> str:
    return f"{count} dropped\n"


class Pipe:
    """A pipe that is read only when the test does."""

    def __init__(self) -> None:
        self.reader, self.writer = os.pipe()

    def lines(self, last: str) -> list[str]:
        """Everything up to a line that contains `last`."""
        text = ""
        while last not in text:
            text += os.read(self.reader, 1 << 20).decode()
        return text.splitlines()

    def close(self) -> None:
        for handle in (self.reader, self.writer):
            os.close(handle)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    pipe = Pipe()
    yield pipe
    pipe.close()


def test_lines_come_in_their_order(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writer, notice)
    for number in range(100):
        lines.put(f"{number}\n")
    assert pipe.lines("99\n") == [str(number) for number in range(100)]
    assert lines.dropped == 0


def test_lines_without_a_reader_wait_for_none_and_the_dropped_ones_are_reported(pipe: Pipe) -> None:
    lines = LineWriter(pipe.writer, notice)
    count = 2 * QUEUED_BYTES_MAX // len(LINE)
    for _ in range(count):
        lines.put(LINE)
    assert lines.dropped > count // 4
    said = list[str]()
    while sum(int(line.split()[0]) for line in said if "dropped" in line) < lines.dropped:
        said += pipe.lines("dropped\n")
    assert sum(line == LINE.strip() for line in said) == count - lines.dropped
    lines.put("after\n")
    assert pipe.lines("after\n") == ["after"]


def test_lines_that_the_system_refuses_are_counted_and_reported_once_it_takes_them(pipe: Pipe) -> None:
    errors: list[OSError] = []
    handle = os.open("/dev/full", os.O_WRONLY)
    lines = LineWriter(handle, notice, errors.append)
    for _ in range(3):
        lines.put("lost\n")
    lines.flush()
    assert lines.dropped == len(errors) == 3
    os.dup2(pipe.writer, handle)
    lines.put("after\n")
    assert pipe.lines("after\n") == ["3 dropped", "after"]
    os.close(handle)


def test_a_pipe_that_others_made_non_blocking_gets_all_lines(pipe: Pipe) -> None:
    os.set_blocking(pipe.writer, False)
    lines = LineWriter(pipe.writer, notice)
    for _ in range(200):
        lines.put(LINE)
    lines.put("last\n")
    assert len(pipe.lines("last\n")) == 201


def test_a_flush_without_a_reader_ends(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_writer, "FLUSH_S", 0.01)
    lines = LineWriter(pipe.writer, notice)
    for _ in range(200):
        lines.put(LINE)
    lines.flush()


@pytest.mark.process
@pytest.mark.slow
def test_a_broker_whose_log_has_no_reader_serves_and_ends(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    metrics = own_port()
    command = [sys.executable, "-m", "popmq_server", "--port", "0", "--tls-port", "0", "--metrics-port", str(metrics)]
    command += ["--data", str(tmp_path / "data"), "--log-format", "json"]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=writer, text=True, cwd=ROOT) as process,
        contextlib.ExitStack() as stopping,
    ):
        os.close(writer)
        stopping.callback(process.kill)
        assert process.stdout is not None
        endpoint = re.search(r"ready on (\S+?)\"", process.stdout.readline())
        assert endpoint
        with popmq.Client(endpoint[1]) as client:
            for number in range(600):  # each writes a line to the audit log
                with pytest.raises(popmq.errors.TopicNotFound):
                    client.topics.delete("none" + "x" * 100 + str(number))
            client.topics.create("t")
            client.send("t", "served")
        with urllib.request.urlopen(f"http://127.0.0.1:{metrics}/healthz", timeout=10) as answer:
            assert answer.status == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    os.close(reader)


@pytest.mark.process
@pytest.mark.slow
def test_a_closed_standard_file_never_becomes_the_data_file(tmp_path: Path) -> None:
    program = "import sys; from popmq_server.__main__ import _reserve_standard_files as reserve; reserve();"
    program += " sys.exit(0 if open(sys.argv[1], 'w').fileno() > 2 else 1)"
    closing = ["bash", "-c", 'exec "$@" <&- >&- 2>&-', "bash", sys.executable, "-c", program, str(tmp_path / "a")]
    assert subprocess.run(closing, cwd=ROOT, check=False).returncode == 0
