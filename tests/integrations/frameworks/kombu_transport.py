"""kombu's own functional tests of transports, with a PopMQ broker: `make test-frameworks` runs it beside them."""

import os
import socket

import kombu
import pytest
from t.integration import common

import popmq_integrations.celery  # noqa: F401  # kombu knows popmq://

URL = os.environ["TEST_BROKER"]


def free_port() -> int:
    """One at which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@pytest.fixture
def connection() -> kombu.Connection:
    return kombu.Connection(URL)


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection(f"popmq://127.0.0.1:{free_port()}", connect_timeout=0.3)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    return kombu.Connection([f"popmq://127.0.0.1:{free_port()}", URL], connect_timeout=0.3)


class TestBasicFunctionality(common.BasicFunctionality):  # type: ignore[misc]
    pass


class TestExchangeTypes(common.BaseExchangeTypes):  # type: ignore[misc]
    pass


class TestTimeToLive(common.BaseTimeToLive):  # type: ignore[misc]
    pass


class TestPriority(common.BasePriority):  # type: ignore[misc]
    pass


class TestMessage(common.BaseMessage):  # type: ignore[misc]
    pass


class TestEventLoop(common.BaseEventLoop):  # type: ignore[misc]
    pass


class TestFailover(common.BaseFailover):  # type: ignore[misc]
    pass
