"""Node, Go, Java and Rust speak to a real broker with stubs made from the contract alone."""

import re
import subprocess
from collections.abc import Callable

import pytest

from harness.broker_process import BrokerProcess
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb

pytestmark = [pytest.mark.polyglot, pytest.mark.timeout(1800)]  # the first run fetches and compiles

WORDS = ["one", "two", "drei – ✓"]
LANGUAGES = ["node", "go", "java", "rust"]
Program = Callable[[str], list[str]]


def run(command: list[str], broker: BrokerProcess, group: str) -> str:
    """What the example printed, after it ended well."""
    arguments = [*command, broker.endpoint, "greetings", group]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def bodies(output: str) -> list[str]:
    return re.findall(r"^popped attempt 1: (.*) (?:\{|map\[).*$", output, re.M)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_made_from_the_contract_sends_pops_extends_and_acks(
    language: str, program: Program, broker: BrokerProcess, stubs: Stubs
) -> None:
    output = run(program(language), broker, language)
    assert sorted(bodies(output)) == sorted(f"{language} {word}" for word in WORDS)
    # popped for 5 s, extended to 60 s: the deadline moved by 55 s and the little time between the two calls
    assert all(55_000 <= int(by) < 60_000 for by in re.findall(r"^extended \d+ by (\d+) ms$", output, re.M))
    assert sum(int(count) for count in re.findall(r"^acked (\d+)$", output, re.M)) == len(WORDS)
    stats = stubs.group_stats("greetings", language)
    assert (stats.acked, stats.ready, stats.in_flight, stats.retry, stats.dead) == (len(WORDS), 0, 0, 0, 0)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_client_made_from_the_contract_reads_the_details_of_an_error(
    language: str, program: Program, broker: BrokerProcess
) -> None:
    output = run(program(language), broker, language)
    refused = re.search(r"^refused (\S+) (\S+) field=(\S*) retryable=(\S+): (.+)$", output, re.M)
    assert refused is not None, output
    status, code, field, retryable, message = refused.groups()
    assert status.replace("_", "").lower() == "notfound"
    assert (code, field, retryable) == ("TOPIC_NOT_FOUND", "topic", "false")
    assert "no-such-topic" in message
    assert re.search(r"^advice \S+", output, re.M), "an error tells what to do about it"


def test_a_message_sent_in_one_language_is_popped_unchanged_in_every_other(
    program: Program, broker: BrokerProcess, stubs: Stubs
) -> None:
    stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name="greetings")))
    message = pb.Message(body=b"python vier", properties={"language": "python"})
    stubs.broker.Send(pb.SendRequest(topic="greetings", messages=[message]))
    sent = {"python vier"}
    here = ["python"]
    for language in LANGUAGES:
        try:
            command = program(language)
        except pytest.skip.Exception:  # not on this machine, or not built
            continue
        here.append(language)
        sent |= {f"{language} {word}" for word in WORDS}
        assert set(bodies(run(command, broker, language))) == sent
    stubs.admin.CreateGroup(pb.CreateGroupRequest(group=pb.Group(name="python")))
    popped = stubs.broker.Pop(pb.PopRequest(topic="greetings", group="python", max_messages=32))
    assert {delivery.message.body.decode() for delivery in popped.deliveries} == sent
    languages = {delivery.message.properties["language"] for delivery in popped.deliveries}
    assert languages == set(here)
