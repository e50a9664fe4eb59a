"""Variables of the environment: one rule for all clients, and for yes and no, white space and byte order marks."""

from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.config import switch, variable

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


@pytest.mark.parametrize("around", [("", "\n"), ("", "\r\n"), (" ", ""), (BOM, "\n")])
def test_a_secret_is_taken_without_what_editors_and_shells_put_around_it(
    around: tuple[str, str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    text = around[0] + "s3cret-s3cret" + around[1]
    monkeypatch.setenv("POPMQ_SECRET", text)
    assert variable("secret") == "s3cret-s3cret"
    file = tmp_path / "secret"
    file.write_text(text, encoding="utf-8", newline="")
    monkeypatch.delenv("POPMQ_SECRET")
    monkeypatch.setenv("POPMQ_SECRET_FILE", f"{file}\n")
    monkeypatch.setenv("POPMQ_ACCESS_KEY", "ops\n")
    from popmq._transport.connection import connection

    signer = connection(None, None, None, None, None, None, None, None).signer
    assert signer is not None
    assert (signer.access_key, signer._secret) == ("ops", b"s3cret-s3cret")
