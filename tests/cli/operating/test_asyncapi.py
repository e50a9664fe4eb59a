"""`popmq work … --asyncapi`: prints what the handlers read, and asks no broker."""

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Cli

APP = """
import popmq

worker = popmq.Worker("mq.example:8081")


@worker.on("sums", group="adder")
def add(numbers: list[int]) -> popmq.Result:
    \"\"\"Adds numbers.\"\"\"
    return popmq.Result(str(sum(numbers)))
"""


@pytest.fixture
def target(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "described_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "described_app:worker"


def test_the_document_is_yaml_or_json_of_the_handlers(run: Cli, target: str) -> None:
    done = run("work", target, "--asyncapi")
    assert (done.code, done.err) == (0, "")
    document = yaml.safe_load(done.out)
    assert (document["asyncapi"], document["info"]["title"]) == ("3.0.0", target)
    assert document["operations"]["adder.sums"]["summary"] == "Adds numbers."
    assert document["components"]["messages"]["add"]["payload"] == {"type": "array", "items": {"type": "integer"}}
    assert json.loads(run("work", target, "--asyncapi", "--json").out) == document


def test_its_server_is_the_one_that_the_worker_would_call(
    run: Cli, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def server(*options: str) -> str:
        return str(yaml.safe_load(run("work", target, *options, "--asyncapi").out)["servers"]["broker"]["host"])

    assert server() == "mq.example:8081"
    monkeypatch.setenv("POPMQ_ENDPOINT", "127.0.0.1:2")
    assert server() == "mq.example:8081", "that of the worker precedes the environment"
    assert server("--endpoint", "127.0.0.1:1") == "127.0.0.1:1"
