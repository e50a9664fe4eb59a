"""Variables of the environment: one rule for all clients, and for yes and no, white space and byte order marks."""

from typing import Any

import pytest

import popmq
from popmq.config import switch

BOM = "\ufeff"


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ENDPOINT", "TLS", "TLS_CA", "CLIENT_CERT", "CLIENT_KEY", "ACCESS_KEY", "SECRET", "SECRET_FILE"):
        monkeypatch.delenv(f"POPMQ_{name}", raising=False)


@pytest.mark.parametrize("make", [popmq.Client, popmq.AsyncClient, lambda *given: popmq.Worker(*given).client()])
async def test_every_client_takes_its_endpoint_from_the_environment_unless_one_is_given(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def endpoint(*given: str) -> str:
        found: str = make(*given).endpoint
        return found

    assert endpoint() == "127.0.0.1:8081"
    monkeypatch.setenv("POPMQ_ENDPOINT", f"{BOM}queue.example:8081\n")
    assert endpoint() == "queue.example:8081"
    assert endpoint("other.example:8081") == "other.example:8081"


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        *((text, True) for text in ("1", "true", "True", "yes", "ON", " true\n")),
        *((text, False) for text in ("", "0", "false", "False", "no", "off", " ", f"{BOM}false\r\n")),
    ],
)
def test_yes_and_no_are_read_by_one_rule(text: str, meant: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPMQ_TLS", text)
    assert switch("tls") is meant


def test_a_switch_with_another_value_is_refused_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPMQ_TLS", "maybe")
    with pytest.raises(popmq.errors.InvalidField, match="POPMQ_TLS is 'maybe'"):
        popmq.Client()
    popmq.Client(tls=False).close()  # what is given counts first
