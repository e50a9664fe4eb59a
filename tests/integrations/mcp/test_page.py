"""docs/integrations/mcp.md: its commands run, its tables have the tools of the server, its file is one of a host."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from popmq.testing import Broker
from popmq_cli.commands import popmq as command_line
from popmq_integrations.mcp import answers, serving
from tests.prose import commands_of, understand

PAGE = (Path(__file__).parents[3] / "docs" / "integrations" / "mcp.md").read_text()


def tools(head: str) -> list[str]:
    table = PAGE.partition(f"| tool | {head} |")[2].partition("\n\n")[0]
    return [name for cell in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", cell)]


def test_the_tables_have_the_tools_of_the_server() -> None:
    assert sorted(tools("what it answers")) == sorted(serving.READS)
    assert sorted(tools("what it does")) == sorted(serving.CHANGES)


def test_the_bounds_of_the_page_are_those_of_the_answers() -> None:
    assert f"{answers.ANSWER_CHARS:,} characters, a list {answers.ROWS} rows and a body {answers.BODY_CHARS}" in PAGE


def test_the_file_of_a_host_starts_the_command() -> None:
    (block,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    started = json.loads(block)["mcpServers"]["popmq"]
    assert started["command"] == "popmq"
    understand(started["args"])
    for line in re.findall(r"`(?:claude mcp add popmq -- )?popmq (mcp [^`]*)`", PAGE):
        understand(line.split())


def test_the_commands_of_the_page_run(popmq_broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    ran = [words for words in commands_of(block) if words[0] != "access-key"]
    assert len(ran) == 3
    for words in ran:
        done = CliRunner().invoke(command_line, ["--endpoint", popmq_broker.endpoint, *words])
        assert done.exit_code == 0, done.output
