"""A broker with an HTTP port, and a plain HTTP client."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from harness.broker_process import own_port
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.stubs import CALL_S

ORIGIN = "https://shop.example"


class Answered(NamedTuple):
    """An answer. `json`: its body, None if that is not JSON."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Http:
    """One connection. Header names of answers are lower case."""

    def __init__(self, url: str) -> None:
        self.connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=CALL_S)

    def asked(self, verb: str, target: str, body: bytes = b"", **headers: str) -> Answered:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.connection.request(verb, target, body or None, named)
        answer = self.connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return Answered(answer.status, found, answer.read())

    def __enter__(self) -> Http:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def call(self, method: str, fields: Mapping[str, Any] | None = None, **headers: str) -> Answered:
        """A call with JSON; `method` as "Broker/Send"."""
        body = json.dumps(fields or {}).encode()
        return self.asked("POST", f"/popmq.v1.{method}", body, **{"content_type": "application/json", **headers})


@pytest.fixture
def served(tmp_path: Path, clock: FakeClock) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        tmp_path / "data", clock=clock, sync="none", http_port=own_port(), http_origins=[ORIGIN]
    ) as broker:
        yield broker


@pytest.fixture
def http_(served: EmbeddedBroker) -> Iterator[Http]:
    with Http(served.http_url) as made:
        yield made
