"""The command line as a whole: help, endpoints, errors, exit codes, and the real program."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete

import popmq
from harness.broker_process import BrokerProcess
from popmq import errors
from popmq.testing import Broker
from popmq_cli.commands import ROWS
from popmq_cli.commands import popmq as command_line
from popmq_cli.readers.stats import GROUP_COLUMNS
from popmq_cli.shared import exits
from popmq_cli.shared.output import Output, fitting
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_verify.stages import STAGES
from tests.cli.conftest import PROGRAM, Cli, on_a_terminal

pytestmark = pytest.mark.process


#: Commands that are no question to a broker, or to two of them.
NO_QUESTION = ("serve", "work", "context", "console", "check", "compact", "access-key", "verify", "migrate", "mcp")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        inner = commands(command, (*path, name)) if isinstance(command, click.Group) else [(*path, name)]
        found += inner
    return found


@pytest.mark.parametrize("path", commands(command_line), ids=" ".join)
def test_every_command_has_help_with_examples_of_itself(run: Cli, path: tuple[str, ...]) -> None:
    done = run(*path, "--help")
    assert done.code == 0
    _, _, examples = done.out.partition("Examples:")
    assert f"popmq {' '.join(path)}" in examples


@pytest.mark.parametrize("path", commands(command_line), ids=" ".join)
def test_no_help_names_a_value_by_the_words_of_the_parser(run: Cli, path: tuple[str, ...]) -> None:
    assert "INTEGER" not in run(*path, "--help").out


@pytest.mark.parametrize("path", [("topic", "update"), ("group", "update")], ids=" ".join)
def test_a_command_that_changes_settings_names_no_default_of_what_it_leaves_as_it_is(
    run: Cli, path: tuple[str, ...]
) -> None:
    created, updated = run(path[0], "create", "--help").out, run(*path, "--help").out
    defaults = re.compile(r"\[default:[^]]+\]")
    assert len(defaults.findall(created)) > 5
    assert [" ".join(found.split())[:13] for found in defaults.findall(updated)] == ["[default: 5s;"]


def test_verify_names_all_of_its_stages(run: Cli) -> None:
    named = " ".join(run("verify", "--help").out.split())
    assert ", ".join(f"'{stage}'" if " " in stage else stage for stage in STAGES) in named
    refused = run("verify", "--only", "fire")
    assert (refused.code, refused.err) == (2, f"popmq: there is no stage 'fire': {', '.join(STAGES)}\n")


@pytest.mark.parametrize(
    "path",
    [path for path in commands(command_line) if path[0] not in NO_QUESTION],
    ids=" ".join,
)
def test_every_command_that_asks_knows_json_and_endpoint(run: Cli, path: tuple[str, ...]) -> None:
    text = run(*path, "--help").out
    assert "--json" in text
    assert ("--namesrv" if path[0] == "cluster" else "--endpoint") in text


def test_the_help_lists_each_command_with_the_first_line_of_its_own_help() -> None:
    for name, row in ROWS.items():
        command = command_line.get_command(click.Context(command_line), name)
        assert command is not None
        assert command.name == name
        assert command.get_short_help_str(200) == row.help


@pytest.mark.parametrize(
    ("arguments", "spared", "most"),
    [
        (["--help"], "grpc google rich popmq asyncio", 7),
        (["topic", "--help"], "grpc google rich popmq._sync asyncio", 19),
        (
            ["topic", "list"],
            "grpc rich asyncio ssl hashlib popmq_server popmq._async.client popmq._sync.consuming.parts popmq.message",
            77,
        ),
    ],
    ids=["help", "help of a command", "topic list"],
)
def test_a_command_imports_no_more_than_it_needs(broker: Broker, arguments: list[str], spared: str, most: int) -> None:
    """The start takes most of the time of a command, and imports most of that: some 1 ms a module of ours."""
    program = f"""import sys
from popmq_cli.main import main
try:
    main()
except SystemExit:
    print(sorted(set({spared.split()}) & set(sys.modules)), file=sys.stderr)
    print(sum(name.startswith("popmq") for name in sys.modules) <= {most}, file=sys.stderr)"""
    command = [sys.executable, "-c", program, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "POPMQ_CLIENT_TRANSPORT"}
    environment["POPMQ_ENDPOINT"] = broker.endpoint
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert done.stderr == "[]\nTrue\n"


def completed(*words: str) -> list[str]:
    *before, last = words
    completing = ShellComplete(command_line, {}, "popmq", "_POPMQ_COMPLETE")
    return [item.value for item in completing.get_completions(list(before), last)]


def test_a_shell_completes_commands_topics_and_groups(client: popmq.Client, broker: Broker) -> None:
    client.topics.create("outbox")
    assert completed("topi") == ["topic"]
    assert completed("peek", "o") == ["orders", "outbox"]
    assert completed("peek", "orders", "") == ["billing"]
    assert completed("topic", "describe", "or") == ["orders"]
    assert completed("--endpoint", "127.0.0.1:1", "peek", "o") == []
    assert completed("--endpoint", "127.0.0.1:1", "peek", "--endpoint", broker.endpoint, "or") == ["orders"]


def test_the_help_tells_the_exit_codes(run: Cli) -> None:
    text = run("--help").out
    assert "3    no broker answers at the endpoint" in text


def test_the_version_is_the_packages(run: Cli) -> None:
    assert run("--version").out == f"popmq {popmq.__version__}\n"


def test_an_endpoint_is_taken_from_the_command_before_the_program_before_the_environment(
    run: Cli, client: popmq.Client, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPMQ_ENDPOINT", "127.0.0.1:1")
    assert run("topic", "list", "--timeout", "10ms").code == 3
    assert run("--endpoint", broker.endpoint, "topic", "list").code == 0
    assert run("--endpoint", "127.0.0.1:1", "topic", "list", "--endpoint", broker.endpoint).code == 0


def test_a_broker_that_is_not_there_is_one_sentence_with_the_cure(run: Cli) -> None:
    done = run("topic", "list", "--endpoint", "127.0.0.1:1", "--timeout", "300ms")
    assert done.code == 3
    first, cure = done.err.splitlines()
    assert first.startswith("popmq: no broker answers at 127.0.0.1:1")
    assert cure == "  → is `popmq serve` running there?"


def test_an_error_in_json_is_one_object_on_the_other_stream(run: Cli, broker: Broker) -> None:
    done = run("--json", "topic", "describe", "nowhere")
    assert (done.code, done.out) == (1, "")
    error = json.loads(done.err)["error"]
    assert (error["code"], error["retryable"]) == ("TOPIC_NOT_FOUND", False)
    assert "nowhere" in error["message"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.TopicNotFound("x"), 1),
        (errors.HandleLapsed("x"), 1),
        (errors.Unavailable("x"), 3),
        (errors.DeadlineExceeded("x"), 3),
        (errors.PartlyRefused([errors.StorageFull("x"), None]), 4),
        (errors.StorageFull("x"), 5),
        (errors.InFlightLimit("x"), 5),
        (errors.InternalError("x"), 70),
    ],
)
def test_exit_codes_tell_apart_what_a_script_would_do(error: errors.PopMQError, code: int) -> None:
    assert exits.code_of(error) == code


def test_tables_have_colours_on_a_terminal_and_none_in_a_pipe(client: popmq.Client, broker: Broker) -> None:
    client.send("orders", "x")
    client.reject(client.pop("orders", "billing"))
    command = [*PROGRAM, "stats"]
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    piped = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=True)
    assert b"\x1b[" not in piped.stdout
    text = on_a_terminal(command, environment)
    assert b"\x1b[1m" in text
    assert "─".encode() in text
    assert b"billing" in text


def test_the_real_program_serves_sends_pops_and_drains(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", program=[*PROGRAM, "serve"]) as broker:
        environment = {**os.environ, "POPMQ_ENDPOINT": broker.endpoint}

        def popmq_(*arguments: str, stdin: str = "") -> str:
            done = subprocess.run(
                [*PROGRAM, *arguments],
                input=stdin,
                env=environment,
                capture_output=True,
                text=True,
                timeout=60,
                check=True,
            )
            return done.stdout

        popmq_("topic", "create", "orders")
        popmq_("group", "create", "billing")
        popmq_("send", "orders", stdin="one\ntwo\n")
        assert popmq_("pop", "orders", "billing", "--max", "9", "--ack") == "one\ntwo\n"
        assert broker.stop() == 0


def test_no_line_of_grpc_reaches_the_terminal(broker: Broker) -> None:
    command = [*PROGRAM, "topic", "list", "--tls", "--timeout", "2s", "--endpoint", broker.endpoint]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    first, cure = done.stderr.splitlines()
    assert first.startswith("popmq: no broker answers at")
    assert "without TLS" in cure


def test_a_flag_that_the_broker_refuses_is_wrong_usage(tmp_path: Path) -> None:
    done = subprocess.run(
        [*PROGRAM, "serve", "--data", str(tmp_path), "--max-size", "tiny"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert "--max-size" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_interrupted_send_says_how_far_it_came(client: popmq.Client, broker: Broker) -> None:
    sending = subprocess.Popen(
        [*PROGRAM, "send", "orders"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ.copy()
    )
    assert sending.stdin
    sending.stdin.write(b"x\n" * 1000)
    sending.stdin.flush()
    while client.broker.stats("orders").topics[0].messages < 1000:
        pass
    sending.send_signal(signal.SIGINT)
    _, err = sending.communicate(timeout=60)
    assert sending.returncode == 130
    # The second request is stored; whether its answer had come when the signal came is open.
    assert err.decode() in {
        f"{sent} messages sent to orders; go on with --from-line {sent + 1}\ninterrupted\n" for sent in (500, 1000)
    }


def test_ctrl_c_ends_a_command_that_asks_no_broker_with_130(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_words: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("popmq_server.embedded.fsck.check.main", interrupted)
    done = run("check", "somewhere")
    assert (done.code, done.err) == (130, "interrupted\n")


def test_check_reads_a_stopped_store_and_ends_with_what_it_found(run: Cli, tmp_path: Path) -> None:
    with EmbeddedBroker(tmp_path / "data") as broker, popmq.Client(broker.endpoint) as client:
        client.topics.create("orders")
        client.send("orders", ["one of a kind"])
        busy = run("check", str(tmp_path / "data"))
    sound = run("check", str(tmp_path / "data"))
    flip_a_byte(tmp_path / "data" / "popmq.mdb", b"one of a kind")
    broken = run("check", str(tmp_path / "data"))
    assert (busy.code, sound.code, broken.code) == (1, 0, 1)
    assert "in use" in busy.err
    assert "does not match its checksum" in broken.out


def test_compact_shrinks_a_stopped_store_and_leaves_a_busy_or_broken_one(run: Cli, tmp_path: Path) -> None:
    data = tmp_path / "data" / "popmq.mdb"
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, popmq.Client(broker.endpoint) as client:
        for topic in ("orders", "gone"):
            client.topics.create(topic)
        for _ in range(4):
            client.send("gone", ["x" * 500_000])
        client.send("orders", ["one of a kind"])
        client.topics.delete("gone")
        busy = run("compact", str(tmp_path / "data"))
    large = data.stat().st_size
    done = run("compact", str(tmp_path / "data"))
    small = data.stat().st_size
    flip_a_byte(data, b"one of a kind")
    broken = run("compact", str(tmp_path / "data"))
    assert (busy.code, done.code, broken.code) == (1, 0, 1)
    assert "in use" in busy.err
    assert done.out.startswith(f"{data}: ")
    assert large > 2_000_000 > 1_000_000 > small
    assert "does not match its checksum" in broken.out


def flip_a_byte(path: Path, mark: bytes) -> None:
    raw = bytearray(path.read_bytes())
    raw[raw.rindex(mark)] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120])
def test_a_narrow_table_keeps_its_names_and_leaves_out_numbers_before_it_cuts_one(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    numbers = [100_000 + number for number in range(10)]
    Output(False).table("Groups", GROUP_COLUMNS, [("a-rather-long-name-of-a-group", "orders", *numbers)])
    text = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "GROUP" in text
    assert "orders" in text
    table, _, left_out = text.partition("no room for ")
    names = [column.removesuffix("#") for column in GROUP_COLUMNS[2:]]
    for name, number in zip(names, numbers, strict=True):
        assert (name in " ".join(left_out.split())) == (str(number) not in table)
    assert re.findall(r"\b1\d+\b", table) == [str(number) for number in numbers if str(number) in table]


def test_a_narrow_table_first_leaves_out_numbers_that_are_zero_in_each_row() -> None:
    columns = ["NAME", "FULL#", "EMPTY#", "RATE#"]
    assert fitting(columns, [["a", "12345", "0", "1.5"], ["b", "1", "0", "0.0"]], 20) == [0, 1, 3]
