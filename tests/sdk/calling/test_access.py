"""TLS and access keys as a program meets them: by arguments, by the environment, and by errors that say the cure."""

import copy
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import popmq
from harness.broker_process import own_port
from popmq import errors
from popmq_server.embedded_broker import EmbeddedBroker
from tests.sdk.conftest import Connect
from tests.wire.access.signing import KEYS, hash_of, secret_of, write_keys

ROOT = {"access_key": "root", "secret": secret_of("root")}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """With both ports, and access keys."""
    keys = tmp_path / "keys.toml"
    write_keys(keys, KEYS)
    with EmbeddedBroker(tmp_path / "data", sync="none", tls_port=own_port(), access_keys=keys) as broker:
        yield broker


@pytest.mark.slow
async def test_a_key_over_tls_sends_pops_and_acks(connect: Connect, broker: EmbeddedBroker) -> None:
    client = connect(broker.tls_endpoint, tls_ca=broker.certificate, **ROOT)
    await client.topics.create("orders")
    await client.groups.create("billing")
    await client.send("orders", ["one", "two"])
    reader = connect(
        broker.tls_endpoint, tls_ca=str(broker.certificate), access_key="reader", secret=secret_of("reader")
    )
    popped = await reader.pop("orders", "billing")
    await reader.ack(popped)
    assert sorted(delivery.text() for delivery in popped) == ["one", "two"]
    with pytest.raises(errors.PermissionDenied, match='"send:orders"'):
        await reader.send("orders", "three")


async def test_a_request_of_a_key_that_may_not_read_replies_says_so_at_once(
    connect: Connect, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    await connect(broker.endpoint, **ROOT).topics.create("orders")
    sender = connect(broker.endpoint, access_key="sender", secret=secret_of("sender"))
    with pytest.raises(errors.PermissionDenied, match="receive:popmq-replies/popmq-replies"):
        await sender.request("orders", "?")
    assert "Traceback" not in caplog.text


@pytest.mark.slow
async def test_a_consumer_and_a_checker_call_with_the_key(
    connect: Connect, broker: EmbeddedBroker, guard: Callable[[popmq.Delivery], Any]
) -> None:
    client = connect(broker.endpoint, **ROOT)
    await client.topics.create("orders", type="TRANSACTION")
    await client.groups.create("billing")
    client.transactions.on_check("orders", lambda check: "commit")
    while not [session for session in await client.sessions.list() if session.stream]:
        pass
    await client.send("orders", "one")
    seen = []
    async for delivery in client.consume("orders", "billing", until_idle=0.2):
        async with guard(delivery):
            seen.append(delivery.text())
    assert seen == ["one"]


async def test_a_client_calls_with_its_secret_while_the_broker_has_only_the_hash(
    connect: Connect, broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popmq_server.protocols.access.known_keys.LOOK_EVERY_S", 0.0)
    (tmp_path / "keys.toml").write_text(f"[root]\nsecret_hash = '{hash_of(secret_of('root'))}'\nallow = ['*']\n")
    client = connect(broker.endpoint, **ROOT)
    await client.topics.create("orders")
    assert [key.secrets for key in (await client.access_keys.list()).access_keys] == [1]
    with pytest.raises(errors.Unauthenticated):
        await connect(broker.endpoint, access_key="root", secret=hash_of(secret_of("root"))).topics.list()


async def test_a_missing_or_wrong_key_is_an_error_with_the_cure(connect: Connect, broker: EmbeddedBroker) -> None:
    for options in (
        {},
        {"access_key": "root", "secret": "not its secret"},
        {"access_key": "nobody", "secret": "x" * 8},
    ):
        with pytest.raises(errors.Unauthenticated, match="access key") as error:
            await connect(broker.endpoint, **options).topics.list()
        assert error.value.action
        assert not error.value.retryable


async def test_the_environment_names_the_key_and_arguments_count_before_it(
    connect: Connect, broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "nothing")
    monkeypatch.setenv("POPMQ_SECRET", secret_of("nothing"))
    assert await connect(broker.endpoint).topics.list() == []
    with pytest.raises(errors.PermissionDenied):
        await connect(broker.endpoint).topics.create("orders")
    await connect(broker.endpoint, **ROOT).topics.create("orders")
    monkeypatch.delenv("POPMQ_SECRET")
    (tmp_path / "secret").write_text(secret_of("nothing") + "\n")
    monkeypatch.setenv("POPMQ_SECRET_FILE", str(tmp_path / "secret"))
    assert await connect(broker.endpoint).topics.list() == []
    read = (tmp_path / "secret").read_text()
    assert await connect(broker.endpoint, secret=read).topics.list() == [], "with the line end of its file"


async def test_a_tls_port_without_tls_and_a_plain_port_with_it_are_named(
    connect: Connect, broker: EmbeddedBroker
) -> None:
    for endpoint, options, cure in (
        (broker.tls_endpoint, {}, "connect with TLS (tls=True, or --tls)"),
        (broker.endpoint, {"tls": True}, "that port is without TLS"),
    ):
        with pytest.raises(errors.Unavailable) as error:
            await connect(endpoint, retry=popmq.Retry(tries=1), **options).topics.list()
        assert cure in error.value.action


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"access_key": "root"}, "secret"),
        ({"secret": "hidden-secret"}, "access_key"),
        ({"tls_ca": "/nowhere/ca.pem"}, "tls_ca"),
    ],
)
def test_half_a_key_and_a_file_that_is_not_there_are_reported_when_the_client_is_made(
    options: dict[str, Any], field: str
) -> None:
    for kind in (popmq.Client, popmq.AsyncClient):
        with pytest.raises(errors.InvalidField) as error:
            kind("127.0.0.1:1", **options)
        assert error.value.field == field
        assert error.value.action
        assert "hidden" not in str(error.value)


@pytest.mark.slow
async def test_a_certificate_that_is_not_trusted_and_a_port_without_tls_are_reported_with_the_cure(
    connect: Connect, broker: EmbeddedBroker
) -> None:
    quick = popmq.Timeouts.all(1.0)
    with pytest.raises(errors.Unavailable, match="trust the broker's certificate by tls_ca"):
        await connect(broker.tls_endpoint, tls=True, timeouts=quick, **ROOT).topics.list()
    with pytest.raises(errors.Unavailable, match="that port is without TLS"):
        await connect(broker.endpoint, tls_ca=broker.certificate, timeouts=quick, **ROOT).topics.list()


@pytest.mark.slow
async def test_a_client_shows_its_secret_in_no_log_error_or_representation(
    connect: Connect, broker: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "not its secret, but hidden"
    client = popmq.Client(broker.endpoint, access_key="root", secret=secret)
    with pytest.raises(errors.Unauthenticated) as error:
        client.topics.list()
    shown = [caplog.text, str(error.value), repr(copy.copy(error.value)), *reprs(client, 4)]
    client.close()
    assert [text for text in shown if "hidden" in text] == []
    assert any("<access key root>" in text for text in shown), "the test looks at where it is kept"


def reprs(part: Any, levels: int) -> Iterator[str]:
    """How an object shows itself and, some levels deep, everything that it holds."""
    yield repr(part)
    for each in vars(part).values() if levels and hasattr(part, "__dict__") else ():
        yield from reprs(each, levels - 1)
