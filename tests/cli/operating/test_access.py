"""Keys and TLS on the command line: made, given by options, files and the environment, never shown."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import popmq
from harness.broker_process import BrokerProcess, own_port
from popmq_server.embedded_broker import EmbeddedBroker
from tests.cli.conftest import PROGRAM, Cli
from tests.wire.access.signing import KEYS, secret_of, write_keys


@pytest.fixture
def guarded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedBroker]:
    """A broker that POPMQ_ENDPOINT names, with TLS and access keys; the secret of root is in a file."""
    write_keys(tmp_path / "keys.toml", KEYS)
    (tmp_path / "secret").write_text(secret_of("root"))
    keys = tmp_path / "keys.toml"
    with EmbeddedBroker(tmp_path / "data", sync="none", tls_port=own_port(), access_keys=keys) as broker:
        monkeypatch.setenv("POPMQ_ENDPOINT", broker.endpoint)
        yield broker


@pytest.mark.slow
def test_a_command_calls_with_a_key_from_options_or_the_environment(
    run: Cli, guarded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = run("topic", "create", "orders")
    assert (refused.code, "→ --access-key NAME --secret-file FILE" in refused.err) == (1, True)
    key = ("--access-key", "root", "--secret-file", str(tmp_path / "secret"))
    assert run("topic", "create", "orders", *key).code == 0
    assert "orders" in run(*key, "topic", "list").out
    assert (
        run("--access-key", "root", "--secret-file", "-", "topic", "list", stdin=secret_of("root").encode()).code == 0
    )
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("POPMQ_SECRET", secret_of("root"))
    assert run("topic", "describe", "orders").code == 0
    assert run("topic", "list", "--secret-file", "/nowhere").code == 2


@pytest.mark.slow
def test_an_admin_may_browse_topics_and_dead_letters_but_not_filter_by_a_pull(
    run: Cli, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with popmq.Client(guarded.endpoint, access_key="root", secret=secret_of("root")) as root:
        root.topics.create("orders", queues=2)
        root.groups.create("billing", max_attempts=1)
        root.send("orders", ["a", "b", "c"])
        root.reject(root.pop("orders", "billing", 1))
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "operator")
    monkeypatch.setenv("POPMQ_SECRET", secret_of("operator"))
    assert sorted(each["body"] for each in run("browse", "orders", "--json").objects) == ["a", "b", "c"]
    assert len(run("browse", "orders", "--since", "1h", "--max", "2", "--json").objects) == 2
    assert len(run("browse", "%DLQ%billing", "--json").objects) == 1
    assert "PERMISSION_DENIED" in run("browse", "orders", "--tag", "eu", "--json").err


@pytest.mark.slow
def test_a_command_goes_over_tls_by_options_or_the_environment(
    run: Cli, guarded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "root")
    monkeypatch.setenv("POPMQ_SECRET_FILE", str(tmp_path / "secret"))
    where = ("--endpoint", guarded.tls_endpoint)
    assert run("topic", "list", *where, "--timeout", "300ms").code == 3
    assert run("topic", "list", *where, "--tls", "--timeout", "300ms").code == 3
    assert run("topic", "list", *where, "--tls-ca", str(guarded.certificate)).code == 0
    monkeypatch.setenv("POPMQ_TLS_CA", str(guarded.certificate))
    assert run("topic", "list", *where).code == 0


def test_the_health_check_of_the_container_works_with_any_key(
    run: Cli, guarded: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run("stats").code == 1
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "nothing")
    monkeypatch.setenv("POPMQ_SECRET", secret_of("nothing"))
    assert run("stats").code == 0


@pytest.mark.slow
def test_a_new_key_is_taken_by_a_running_broker(
    run: Cli, guarded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.protocols.access.known_keys.LOOK_EVERY_S", 0.0)
    made = run("access-key", "new", "clerk", "--allow", "send:orders", "--allow", "receive:orders/*")
    with (tmp_path / "keys.toml").open("a") as file:
        file.write(made.out)
    secret = made.out.splitlines()[1].split('"')[1]
    assert len(secret) >= 43
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "clerk")
    monkeypatch.setenv("POPMQ_SECRET", secret)
    assert run("stats").code == 0


def test_a_new_key_s_secret_goes_into_a_file_of_the_client_and_its_hash_to_the_broker(
    run: Cli, guarded: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.protocols.access.known_keys.LOOK_EVERY_S", 0.0)
    kept = tmp_path / "clerk.secret"
    made = run("access-key", "new", "clerk", "--allow", "send:orders", "--secret-to", str(kept))
    with (tmp_path / "keys.toml").open("a") as file:
        file.write(made.out)
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().strip() not in made.out
    assert run("access-key", "hash", stdin=kept.read_bytes()).out.strip() == made.out.splitlines()[1].split('"')[1]
    assert run("stats", "--access-key", "clerk", "--secret-file", str(kept)).code == 0
    secret = kept.read_text()
    again = run("access-key", "new", "clerk", "--allow", "send:orders", "--secret-to", str(kept))
    assert (again.code, again.out, kept.read_text()) == (2, "", secret), "no file is overwritten"


def test_a_secret_goes_nowhere_with_a_wrong_grant_a_certificate_or_too_few_characters(run: Cli, tmp_path: Path) -> None:
    kept = tmp_path / "clerk.secret"
    new = ("access-key", "new", "clerk", "--secret-to", str(kept), "--allow")
    assert run(*new, "sned:orders").code == run(*new, "admin", "--certificate", "clerk.example.org").code == 2
    assert not kept.exists()
    assert run("access-key", "hash", stdin=b"short\n").code == 2


def test_a_new_key_may_have_an_end(run: Cli) -> None:
    made = run("access-key", "new", "clerk", "--allow", "admin", "--days", "90").out
    expires = datetime.fromisoformat(made.splitlines()[3].removeprefix("expires = "))
    assert timedelta(days=89) < expires - datetime.now(UTC) <= timedelta(days=90)
    assert run("access-key", "new", "clerk", "--allow", "admin", "--days", "0").code == 2


def test_a_new_key_may_have_limits_and_a_certificate_in_place_of_a_secret(run: Cli, tmp_path: Path) -> None:
    limits = ("--connections", "3", "--calls-per-s", "50", "--bytes-in-flight", "2MiB")
    made = run("access-key", "new", "clerk", "--allow", "admin", "--certificate", "shop.example", *limits).out
    lines = ["[clerk]", 'certificates = ["shop.example"]', 'allow = ["admin"]']
    assert made.split("\n")[:6] == [*lines, "connections = 3", "calls_per_s = 50", "bytes_in_flight = 2097152"]
    for wrong in (("--connections", "0"), ("--bytes-in-flight", "much"), ("--certificate", 'a"b')):
        assert run("access-key", "new", "clerk", "--allow", "admin", *wrong).code == 2


@pytest.mark.slow
def test_the_keys_of_a_broker_are_listed_with_what_they_use(run: Cli, guarded: EmbeddedBroker, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(secret_of("root"))
    done = run("access-key", "list", "--access-key", "root", "--secret-file", str(tmp_path / "secret"), "--json")
    rows = {row["name"]: row for row in map(json.loads, done.out.splitlines())}
    assert set(rows) == set(KEYS)
    assert (rows["root"]["connections"], rows["reader"]["connections"], rows["root"]["calls_per_s_max"]) == (1, 0, 0)


@pytest.mark.parametrize("words", [("clerk", "--allow", "sned:orders"), ("a clerk", "--allow", "admin"), ("clerk",)])
def test_a_key_that_could_not_stand_in_the_file_is_not_made(run: Cli, words: tuple[str, ...]) -> None:
    done = run("access-key", "new", *words)
    assert (done.code, done.out) == (2, "")


def test_no_option_takes_a_secret(run: Cli) -> None:
    """Arguments are visible in the list of processes."""
    for words in (("--help",), ("send", "--help"), ("serve", "--help")):
        assert "--secret " not in run(*words).out


@pytest.mark.slow
@pytest.mark.process
def test_the_program_refuses_keys_that_others_may_read_and_says_that_it_asks_for_them(tmp_path: Path) -> None:
    write_keys(tmp_path / "keys.toml", KEYS)
    (tmp_path / "keys.toml").chmod(0o644)
    serve = [*PROGRAM, "serve", "--data", str(tmp_path / "data"), "--port", "0", "--tls-port", "0"]
    serve += ["--metrics-port", "0", "--access-keys", str(tmp_path / "keys.toml")]
    refused = subprocess.run(serve, capture_output=True, text=True, timeout=60, env=os.environ)
    assert (refused.returncode, refused.stdout) == (78, "")
    assert f"chmod 600 {tmp_path / 'keys.toml'}" in refused.stderr
    assert not (tmp_path / "data").exists(), "nothing was made for a start that fails"
    (tmp_path / "keys.toml").chmod(0o600)
    flags = ("--access-keys", str(tmp_path / "keys.toml"))
    with BrokerProcess(tmp_path / "data", *flags, program=[*PROGRAM, "serve"]) as broker:
        assert broker.read_line() == f"popmq: every call needs an access key: {tmp_path / 'keys.toml'}"
        assert broker.stop() == 0
