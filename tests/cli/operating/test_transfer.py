"""`popmq export` and `popmq import`: a topic as JSON lines or Parquet, and back, with all fields of its messages."""

import base64
import json
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.messages import transfer
from tests.cli.conftest import Cli

MESSAGES = [
    popmq.Message("text ü", key="k", more_keys=["k2"], tag="t", properties={"a": "b"}, message_id="one", born_ms=5),
    popmq.Message(b"\x00\xff", message_id="two", trace_context=popmq.TraceContext("00-a-b-01", "x=y")),
    popmq.Message(b"z", message_id="three", encoding="GZIP"),
]


def fields(client: popmq.Client, topic: str, queues: int = 1) -> list[tuple[object, ...]]:
    rows = [row for queue in range(queues) for row in client.messages.browse(topic, queue, 0, 4096).deliveries]
    return [
        (
            row.body,
            row.message_id,
            row.key,
            tuple(row.more_keys),
            row.tag,
            dict(row.properties),
            row.message_group,
            row.priority,
            row.deliver_at_ms,
            row.encoding,
            row.trace_context,
            row.born_ms,
        )
        for row in rows
    ]


@pytest.fixture
def topics(client: popmq.Client) -> popmq.Client:
    """Topic from, with three messages, and an empty one."""
    for name in ("from", "to"):
        client.topics.create(name, queues=1)
    client.send("from", MESSAGES)
    return client


@pytest.mark.slow
@pytest.mark.parametrize("name", ["file.jsonl", pytest.param("file.parquet", marks=pytest.mark.whole)])
def test_every_field_of_a_message_survives(run: Cli, topics: popmq.Client, tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    done = run("export", "from", path)
    assert (done.code, done.out, done.err) == (0, "", "3 messages of from exported\n")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("file")] == [name]
    assert run("import", "to", path).err == "3 messages sent to to\n"
    assert fields(topics, "to") == fields(topics, "from")


@pytest.mark.slow
def test_order_groups_priorities_and_times_survive(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    at = datetime(2020, 1, 1, tzinfo=UTC)
    client.topics.create("ledger", 4, "FIFO")
    client.topics.create("copy", 4, "FIFO")
    client.send("ledger", [popmq.Message(f"{n}", message_group=f"g{n % 3}", deliver_at=at) for n in range(30)])
    path = str(tmp_path / "ledger.jsonl")
    assert run("export", "ledger", path).code == 0
    assert run("import", "copy", path).code == 0

    def by_group(topic: str) -> dict[str, list[bytes]]:
        rows = [row for queue in range(4) for row in client.messages.browse(topic, queue, 0, 4096).deliveries]
        return {name: [row.body for row in rows if row.message_group == name] for name in ("g0", "g1", "g2")}

    assert by_group("copy") == by_group("ledger")
    assert sum(map(len, by_group("copy").values())) == 30


def test_bodies_are_text_or_base64_and_the_place_is_reported(run: Cli, topics: popmq.Client) -> None:
    first, second, _ = run("export", "from", "-").objects
    assert (first["body"], first["queue"], first["offset"]) == ("text ü", 0, 0)
    assert base64.b64decode(second["body_base64"]) == b"\x00\xff"
    assert "tag" not in second


@pytest.mark.slow
def test_dead_letters_are_exported(run: Cli, topics: popmq.Client) -> None:
    topics.groups.create("g")
    for row in topics.pop("from", "g"):
        topics.reject(row, reason="no")
    assert len(run("export", "%DLQ%g", "-").objects) == 3


@pytest.mark.parametrize(
    "line",
    [
        *("no json", "[]", "{}", '{"key": "k"}', '{"body": 5}', '{"body": "x", "colour": 1}', '{"body_base64": "%"}'),
        *('{"body": "x", "deliver_at_ms": 4611686018427387904}', '{"body": "x", "properties": {"n": 1}}'),
        *('{"body": "x", "key": 5}', '{"body": "x", "priority": "high"}', '{"body": "x", "more_keys": "abc"}'),
        *('{"body": "x", "message_id": 7}', '{"body": "x", "properties": "a=b"}', '{"body": "\\ud83d"}'),
        *('{"body": "x", "tag": "\\ud83d"}', '{"body": "x", "encoding": "RAR"}'),
        *('{"body": "x", "born_ms": 1e400}', '{"body": "x", "traceparent": 5}', "[" * 100_000),
    ],
)
def test_a_line_that_is_no_message_is_named_and_those_before_it_are_sent(
    run: Cli, topics: popmq.Client, line: str, tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(f'{{"body": "fine"}}\n\n{line}\n{{"body": "after"}}\n')
    done = run("import", "to", str(path))
    assert done.code == 2
    assert "line 3 is not a message" in done.err
    assert "1 message sent to to; go on with --from-line 3" in done.err
    assert [row[0] for row in fields(topics, "to")] == [b"fine"]
    path.write_text(path.read_text().replace(line, '{"body": "mended"}'))
    assert run("import", "to", str(path), "--from-line", "3").code == 0
    assert [row[0] for row in fields(topics, "to")] == [b"fine", b"mended", b"after"]


@pytest.mark.promise("statistics")
def test_a_line_is_named_by_its_number_after_many_others(run: Cli, client: popmq.Client) -> None:
    lines = [f'{{"body": "{number}"}}' for number in range(700)]
    lines[600] = '{"body": "x", "key": 5}'
    text = "\n".join(lines).encode()
    for number, command in enumerate((("import", "orders", "-"), ("send", "orders", "--json-lines"))):
        done = run(*command, stdin=text)
        assert done.code == 2
        assert "600 messages sent to orders; go on with --from-line 601" in done.err
        assert "line 601 is not a message: key is 5, of type int: give a str" in done.err
        assert run(*command, "--from-line", "602", stdin=text).err == "99 messages sent to orders\n"
        assert client.broker.stats("orders").topics[0].messages == 699 * (number + 1)


def test_a_field_that_is_unknown_is_named(run: Cli, client: popmq.Client) -> None:
    line = b'{"body": "x", "keey": "k"}'
    for command in (("import", "orders", "-"), ("send", "orders", "--json-lines")):
        assert "line 1 is not a message: there is no field 'keey'" in run(*command, stdin=line).err


def test_empty_lines_are_counted_but_not_sent(run: Cli, client: popmq.Client) -> None:
    done = run("send", "orders", "--json-lines", stdin=b'{"body": "a"}\r\n\n\n{"body": 1, "colour": 2}\n')
    assert (done.code, "line 4 is not a message" in done.err) == (2, True)
    assert "1 message sent to orders; go on with --from-line 4" in done.err


def test_lines_that_the_broker_refuses_are_named_and_the_others_are_stored(
    run: Cli, topics: popmq.Client, tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text("\n".join(json.dumps({"body": "x", "priority": n % 2}) for n in range(4)))
    done = run("import", "to", str(path))
    assert done.code == 4
    assert "line 2 was refused" in done.err
    assert "line 4 was refused" in done.err
    assert "2 messages sent to to; go on with --from-line 4" in done.err
    assert len(fields(topics, "to")) == 2


def test_an_import_into_a_wrong_topic_goes_on_with_the_first_line_that_was_refused(
    run: Cli, topics: popmq.Client, tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text("\n" + "\n".join(json.dumps({"body": f"{n}", "message_group": "g"}) for n in range(22)))
    done = run("import", "to", str(path))
    assert done.code == 4
    assert "0 messages sent to to; go on with --from-line 2" in done.err
    topics.topics.create("ledger", queues=1, type="FIFO")
    assert run("import", "ledger", str(path), "--from-line", "2").code == 0
    assert len(fields(topics, "ledger")) == 22


def test_a_topic_with_unique_ids_may_be_imported_twice(run: Cli, topics: popmq.Client, tmp_path: Path) -> None:
    topics.topics.create("once", queues=1, unique_ids=3600)
    path = str(tmp_path / "file.jsonl")
    run("export", "from", path)
    assert [run("import", "once", path).code for _ in range(2)] == [0, 0]
    assert len(fields(topics, "once")) == 3


@pytest.mark.slow
def test_many_pages_and_pieces_are_moved_whole(run: Cli, client: popmq.Client, tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(1234)]
    client.send("orders", names)
    client.topics.create("copy", queues=2)
    path = str(tmp_path / "file.jsonl")
    assert run("export", "orders", path).err == "1234 messages of orders exported\n"
    assert run("import", "copy", path).err == "1234 messages sent to copy\n"
    assert {row[0] for row in fields(client, "copy", 2)} == {name.encode() for name in names}
    assert len(fields(client, "copy", 2)) == 1234


@pytest.mark.slow
def test_an_export_that_fails_leaves_the_file_that_was_there(
    run: Cli, topics: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text("before")

    def broken(*_: object) -> object:
        raise popmq.errors.Unavailable("gone")

    monkeypatch.setattr(transfer, "_stored", broken)
    assert run("export", "from", str(path), "--force").code == 3
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_an_export_replaces_a_file_only_by_force(run: Cli, topics: popmq.Client, tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text("before")
    refused = run("export", "from", str(path))
    assert (refused.code, path.read_text()) == (2, "before")
    assert "exists: name another file, or replace it with --force" in refused.err
    assert run("export", "from", str(path), "--force").code == 0
    assert len(path.read_text().splitlines()) == 3


def test_an_export_writes_over_nothing_but_the_named_file(run: Cli, topics: popmq.Client, tmp_path: Path) -> None:
    elsewhere, path = tmp_path / "elsewhere", tmp_path / "file.jsonl"
    elsewhere.write_text("before")
    (tmp_path / "file.jsonl.part").write_text("before")
    path.symlink_to(elsewhere)
    assert run("export", "from", str(path), "--force").code == 0
    assert (elsewhere.read_text(), (tmp_path / "file.jsonl.part").read_text()) == ("before", "before")
    os.mkfifo(tmp_path / "pipe")
    refused = run("export", "from", str(tmp_path / "pipe"), "--force")
    assert (refused.code, "is not a regular file" in refused.err) == (2, True)


@pytest.mark.slow
def test_an_export_to_parquet_without_pyarrow_says_what_to_install(
    run: Cli, topics: popmq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    done = run("export", "from", str(tmp_path / "file.parquet"))
    assert done.code == 1
    assert "pip install pyarrow" in done.err
    assert run("export", "from", str(tmp_path / "file.jsonl")).code == 0


@pytest.mark.whole
@pytest.mark.parametrize("damage", ["text", "a page", "properties"])
def test_a_file_that_is_no_parquet_is_a_sentence(run: Cli, topics: popmq.Client, tmp_path: Path, damage: str) -> None:
    path = tmp_path / "file.parquet"
    if damage == "text":
        path.write_bytes(b"no parquet at all, but long enough")
    else:
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.table({"body": [b"x"], "properties": ["text"]}), path)
    if damage == "a page":
        raw = path.read_bytes()
        path.write_bytes(raw[:4] + bytes(20) + raw[24:])
    done = run("import", "to", str(path))
    assert done.code == 2
    assert "not a Parquet file" in done.err


#: Runs a command, and prints at its end how much memory was resident at most, in KiB.
MEASURED = """
import sys
from popmq_cli.main import main
try:
    main()
finally:
    (line,) = [line for line in open("/proc/self/status") if line.startswith("VmHWM")]
    print(line.split()[1], file=sys.stderr)
"""


@pytest.mark.embedded("a store that is written at the speed of a disk")
@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="no /proc")
@pytest.mark.parametrize("name", ["file.jsonl", pytest.param("file.parquet", marks=pytest.mark.whole)])
def test_an_export_and_an_import_hold_few_messages_at_a_time(broker: Broker, tmp_path: Path, name: str) -> None:
    client = broker.client()
    for topic in ("from", "to"):
        client.topics.create(topic, queues=1)
    for _ in range(20):
        client.send("from", [os.urandom(1_000_000) for _ in range(15)])
    for command in (("export", "from"), ("import", "to")):
        arguments = [sys.executable, "-c", MEASURED, *command, str(tmp_path / name)]
        done = subprocess.run(arguments, capture_output=True, text=True, check=True)
        assert int(done.stderr.split()[-1]) < 300 * 1024  # of 300 MB
    assert client.broker.stats("to").topics[0].messages == 300
