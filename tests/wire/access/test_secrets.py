"""Secrets that a client reads from its environment and from files."""

from pathlib import Path

import pytest

from popmq._transport.connection import connection
from popmq.config import variable

BOM = "\ufeff"


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
    signer = connection(None, None, None, None, None, None, None, None).signer
    assert signer is not None
    assert (signer.access_key, signer._secret) == ("ops", b"s3cret-s3cret")
