"""The commands of docs/http.md, run by a shell as they stand there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from popmq_server.embedded_broker import EmbeddedBroker

PAGE = Path(__file__).parents[3] / "docs" / "http.md"
HANDLE = re.compile(r'"handles": \["([\w-]+)"\]')


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_commands_of_the_page_send_pop_and_ack(served: EmbeddedBroker) -> None:
    text = PAGE.read_text()
    (block,) = re.findall(r"```console\n(api=.*?)```", text, re.DOTALL)
    (read,) = re.findall(r"`(curl \"\$api\.Admin/ListTopics[^`]*)`", text)
    set_up = block.partition("\n\n")[0].replace("http://127.0.0.1:8083", served.http_url)
    handle, answers = "", []
    for line in [*block.partition("\n\n")[2].strip().splitlines(), read]:
        command = HANDLE.sub(f'"handles": ["{handle}"]', line)
        ran = subprocess.run(
            ["sh", "-c", f"{set_up}\n{command}"], capture_output=True, text=True, check=True, timeout=60
        )
        answers.append(json.loads(ran.stdout))
        handle = answers[-1].get("deliveries", [{}])[0].get("handle", handle)
    made_topic, made_group, sent, popped, acked, listed = answers
    assert made_topic["topic"]["name"] == listed["topics"][0]["name"] == "orders"
    assert made_group["group"]["name"] == "billing"
    assert len(sent["results"]) == 1
    assert popped["deliveries"][0]["message"]["body"] == "aGVsbG8="
    assert acked == {}
