"""What an outbox adds, in statements and requests."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import popmq
from tests.outbox.conftest import TOPIC

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.slow


def test_a_send_costs_its_transaction_one_statement_and_the_broker_two_requests(url: str, client: popmq.Client) -> None:
    statements: list[int] = []

    class Counted(psycopg.Connection):  # type: ignore[misc, name-defined]  # psycopg is loaded by pytest
        def cursor(self, *arguments: Any, **options: Any) -> Any:
            statements.append(1)
            return super().cursor(*arguments, **options)

    with popmq.Outbox(client, url) as outbox, Counted.connect(url) as connection:
        before = client.client_stats().calls
        with outbox(connection) as box, connection.transaction():
            box.send(TOPIC, ["one", "two", "three"])
        assert outbox.flush(30.0)
        assert (len(statements), client.client_stats().calls - before) == (1, 2)


def test_a_program_without_an_outbox_imports_nothing_of_it(tmp_path: Path) -> None:
    code = (
        "import sys, popmq; popmq.Client('127.0.0.1:1').close(); print([one for one in sys.modules if 'outbox' in one])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("[]\n", "")
