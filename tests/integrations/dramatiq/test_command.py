"""`dramatiq app`: worker processes of Dramatiq's own command."""

import os
from pathlib import Path
from typing import Any

import dramatiq
import pytest
from dramatiq.results import ResultMissing, Results

from popmq.testing import Broker
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker
from tests.integrations.programs import Program

pytestmark = pytest.mark.process

APP = """
    import os, signal, dramatiq
    from pathlib import Path
    from dramatiq.results import Results
    from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker

    broker = PopMQBroker(invisible_time="1s")
    broker.add_middleware(Results(backend=PopMQBackend()))
    dramatiq.set_broker(broker)

    @dramatiq.actor(store_results=True)
    def who(number):
        return [number, os.getpid()]

    @dramatiq.actor(store_results=True)
    def dies_once(path):
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "lived"
"""


@pytest.fixture
def sender(popmq_broker: Broker) -> PopMQBroker:
    broker = PopMQBroker(popmq_broker.endpoint, invisible_time="1s")
    broker.add_middleware(Results(backend=PopMQBackend(popmq_broker.endpoint)))
    dramatiq.set_broker(broker)
    return broker


def sent(sender: PopMQBroker, actor: str, *values: object) -> "dramatiq.Message[Any]":
    message: dramatiq.Message[Any] = dramatiq.Message("default", actor, values, {}, {})
    return sender.enqueue(message)


@pytest.mark.smoke
def test_the_command_runs_actors_in_processes_and_ends_when_it_is_told_to(
    sender: PopMQBroker, popmq_broker: Broker, tmp_path: Path
) -> None:
    asked = [sent(sender, "who", number) for number in range(20)]
    command = ("-m", "dramatiq", "app", "--processes", "2", "--threads", "2")
    with Program(tmp_path, APP, *command, POPMQ_ENDPOINT=popmq_broker.endpoint) as program:
        answers = [message.get_result(block=True, timeout=60_000) for message in asked]
        assert program.stop() == 0, program.log.read_text()
    assert [number for number, _ in answers] == list(range(20))
    assert os.getpid() not in {process for _, process in answers}
    assert sender.get_queue_message_counts("default") == (0, 0, 0)


@pytest.mark.slow
def test_a_message_whose_worker_was_killed_runs_in_another_one(
    sender: PopMQBroker, popmq_broker: Broker, tmp_path: Path
) -> None:
    message = sent(sender, "dies_once", str(tmp_path / "died"))
    command = ("-m", "dramatiq", "app", "--processes", "1", "--threads", "1")
    with Program(tmp_path, APP, *command, POPMQ_ENDPOINT=popmq_broker.endpoint) as first:
        first.wait()  # Dramatiq's command ends when one of its processes was killed
    with pytest.raises(ResultMissing):
        message.get_result()
    with Program(tmp_path, APP, *command, POPMQ_ENDPOINT=popmq_broker.endpoint):
        assert message.get_result(block=True, timeout=60_000) == "lived"


def test_a_forked_child_sends_with_a_client_of_its_own(sender: PopMQBroker) -> None:
    sent(sender, "who", 1)
    child = os.fork()
    if child == 0:
        try:
            sent(sender, "who", 2)
            os._exit(0)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    sent(sender, "who", 3)
    assert sender.get_queue_message_counts("default") == (3, 0, 0)
    sender.close()
