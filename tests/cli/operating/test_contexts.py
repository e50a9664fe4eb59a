"""`popmq context`: brokers by name, what wins over what, and a file that only its owner reads."""

import fcntl
import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace

import pytest

import popmq.testing
from popmq.testing import Broker
from popmq_cli.shared import asking, contexts
from tests.cli.conftest import Cli

NOWHERE = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts and variables."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("POPMQ_")]:
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> "list[dict[str, object]]":
    """The connections that commands would make."""
    found: list[dict[str, object]] = []

    def client(**connection: object) -> object:
        found.append({name: each for name, each in connection.items() if name not in ("timeouts", "retry")})
        raise popmq.errors.Unavailable("not connected in this test")

    monkeypatch.setattr(asking, "popmq", SimpleNamespace(Client=client, Timeouts=popmq.Timeouts, Retry=popmq.Retry))
    return found


def test_commands_ask_the_selected_broker(run: Cli, popmq_broker: Broker) -> None:
    run("context", "add", "local", "--endpoint", popmq_broker.endpoint)
    run("context", "add", "prod", "--endpoint", NOWHERE)
    assert run("topic", "create", "orders").code == 0  # the first one is selected
    run("context", "select", "prod")
    assert run("topic", "list", "--timeout", "50ms").code == 3
    assert run("topic", "list", "--context", "local").out.splitlines()[1].startswith("orders")
    assert run("--context", "local", "topic", "list").code == 0


def test_options_variables_and_contexts_have_an_order_of_precedence(
    run: Cli, monkeypatch: pytest.MonkeyPatch, found: list[dict[str, object]]
) -> None:
    secret = ("--access-key", "ops", "--secret-file", "-")
    run("context", "add", "one", "--endpoint", "one:1", "--tls", *secret, stdin=b"hush\n")
    run("context", "add", "two", "--endpoint", "two:1")
    one = {"endpoint": "one:1", "tls": True, "access_key": "ops", "secret": "hush"}
    run("topic", "list")
    run("topic", "list", "--endpoint", "option:1")  # and no secret goes there
    run("topic", "list", "--context", "one", "--endpoint", "option:1")
    run("topic", "list", "--context", "one", "--access-key", "me")  # whose secret is not that of `ops`
    monkeypatch.setenv("POPMQ_ENDPOINT", "variable:1")
    run("topic", "list")
    run("topic", "list", "--context", "two")
    monkeypatch.setenv("POPMQ_CONTEXT", "one")
    run("topic", "list")
    rest = {"tls": False, "tls_ca": "", "client_cert": "", "client_key": ""}  # not from the environment either
    assert found == [
        one,
        {"endpoint": "option:1"},
        rest | one | {"endpoint": "option:1"},
        rest | {"endpoint": "one:1", "tls": True, "access_key": "me"},
        {"endpoint": "variable:1"},
        rest | {"endpoint": "two:1", "access_key": "", "secret": ""},
        rest | one,
    ]


def test_the_file_is_its_owners_alone_and_secrets_are_not_shown(run: Cli, home: Path) -> None:
    key = home / "secret"
    key.write_text("hush")
    run("context", "add", "one", "--endpoint", "one:1", "--access-key", "a", "--secret-file", "-", stdin=b"hush")
    run("context", "add", "two", "--endpoint", "two:1", "--access-key", "b", "--secret-file", str(key), "--select")
    path = home / "popmq" / "contexts.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text())["contexts"]["two"]["secret_file"] == str(key)
    shown = run("context", "list")
    assert "hush" not in shown.out
    rows = [line.split("\t")[:3] for line in shown.out.splitlines()[1:]]
    assert rows == [["", "one", "one:1"], ["*", "two", "two:1"]]
    assert [each["selected"] for each in run("context", "list", "--json").objects] == [False, True]
    path.chmod(0o644)
    done = run("topic", "list")
    assert (done.code, f"chmod 600 {path}" in done.err) == (1, True)


def test_one_change_waits_for_another_so_that_none_is_lost(home: Path) -> None:
    with contexts.changed() as one:
        one.by_name["first"] = {"endpoint": NOWHERE}
        other = os.open(home / "popmq", os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(other)
    with contexts.changed() as two:
        assert list(two.by_name) == ["first"]


def test_a_removed_context_is_no_longer_selected(run: Cli) -> None:
    run("context", "add", "one", "--endpoint", "one:1")
    assert run("context", "remove", "one").code == 0
    assert run("context", "list", "--json").objects == []
    for words in (("context", "select", "one"), ("context", "remove", "one"), ("topic", "list", "--context", "one")):
        done = run(*words)
        assert (done.code, "there is no context 'one'" in done.err) == (2, True)
        assert "popmq context add one --endpoint HOST:PORT" in done.err


def test_a_certificate_of_a_context_is_shown_by_commands_and_never_by_the_console(
    run: Cli, home: Path, found: list[dict[str, object]]
) -> None:
    shown = {"client_cert": str(home / "cert.pem"), "client_key": str(home / "key.pem")}
    for path in shown.values():
        Path(path).touch()
    words = ("--client-cert", shown["client_cert"], "--client-key", shown["client_key"])
    assert run("context", "add", "one", "--endpoint", "one:1", *words[:2]).code == 2
    run("context", "add", "one", "--endpoint", "one:1", *words)
    run("topic", "list")
    run("topic", "list", "--endpoint", "two:1", *words)
    assert found == [{"endpoint": "one:1", **shown}, {"endpoint": "two:1", **shown}]
    done = run("console")
    assert (done.code, "shows no client certificate" in done.err) == (2, True)


def test_half_a_key_and_a_broken_file_are_refused(run: Cli, home: Path) -> None:
    assert run("context", "add", "one", "--endpoint", "one:1", "--access-key", "ops").code == 2
    (home / "popmq").mkdir()
    (home / "popmq" / "contexts.json").write_text("[]")
    (home / "popmq" / "contexts.json").chmod(0o600)
    assert "cannot be read" in run("context", "list").err
