"""Access keys and TLS of a URL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import kombu
import pytest

from harness.broker_process import own_port
from popmq.errors import PermissionDenied, Unauthenticated
from popmq_server.embedded_broker import EmbeddedBroker
from tests.integrations.celery.conftest import Connect
from tests.wire.access.signing import secret_of, write_keys

pytestmark = pytest.mark.slow
KEYS = {"worker": ["*"], "shop": ["send:jobs"], "guest": []}
JOBS = kombu.Queue("jobs", routing_key="jobs")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    write_keys(tmp_path / "keys.toml", KEYS)
    with EmbeddedBroker(
        tmp_path / "data", sync="none", tls_port=own_port(), access_keys=tmp_path / "keys.toml"
    ) as broker:
        yield broker


def url(endpoint: str, name: str, scheme: str = "popmq") -> str:
    return f"{scheme}://{name}:{quote(secret_of(name), safe='')}@{endpoint}"


def test_a_key_that_may_only_send_sends_to_the_queue_that_a_worker_has_declared(
    secured: EmbeddedBroker, connect: Connect
) -> None:
    worker, shop = connect(url(secured.endpoint, "worker")), connect(url(secured.endpoint, "shop"))
    got: list[Any] = []
    consumer = kombu.Consumer(worker.channel(), [JOBS], callbacks=[lambda body, message: got.append(body)])
    consumer.consume()
    shop.Producer().publish("task", routing_key="jobs", declare=[JOBS])
    worker.drain_events(timeout=20)
    assert got == ["task"]


def test_a_key_without_the_right_gets_an_error_that_says_which(secured: EmbeddedBroker, connect: Connect) -> None:
    connect(url(secured.endpoint, "worker")).channel().queue_declare("jobs", durable=True)
    guest = connect(url(secured.endpoint, "guest"))
    with pytest.raises(PermissionDenied, match='"send:jobs"') as raised:
        guest.Producer().publish("task", routing_key="jobs")
    assert not isinstance(raised.value, guest.connection_errors)


def test_a_wrong_secret_is_refused_when_it_connects(secured: EmbeddedBroker, connect: Connect) -> None:
    connection = connect(f"popmq://shop:wrong@{secured.endpoint}")
    with pytest.raises(Unauthenticated):
        connection.connect()


def test_a_url_of_popmqs_connects_with_tls(secured: EmbeddedBroker, connect: Connect) -> None:
    connection = connect(url(secured.tls_endpoint, "worker", "popmqs"), tls_ca=str(secured.certificate))
    connection.Producer().publish("task", routing_key="jobs", declare=[JOBS])
    message = connection.channel().basic_get("jobs")
    assert message.payload == "task"
    message.ack()
