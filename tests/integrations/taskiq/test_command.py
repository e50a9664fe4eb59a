"""`taskiq worker app:broker`: worker processes of taskiq's own command."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from taskiq import AsyncTaskiqDecoratedTask

from popmq.testing import Broker
from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend
from tests.integrations.programs import Program
from tests.integrations.taskiq.helpers import until_done

pytestmark = pytest.mark.process

APP = """
    import os, signal
    from pathlib import Path
    from popmq_integrations.taskiq import PopMQBroker, PopMQResultBackend

    broker = PopMQBroker(invisible_time="1s").with_result_backend(PopMQResultBackend())

    @broker.task(task_name="who")
    async def who(number: int) -> list[int]:
        return [number, os.getpid()]

    @broker.task(task_name="dies_once")
    async def dies_once(path: str) -> str:
        if not Path(path).exists():
            Path(path).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "lived"
"""
COMMAND = ("-m", "taskiq", "worker", "app:broker", "--workers", "2", "--max-async-tasks", "4")


@pytest.fixture
async def sender(popmq_broker: Broker) -> AsyncIterator[PopMQBroker]:
    backend = PopMQResultBackend[object](popmq_broker.endpoint)
    broker = PopMQBroker(popmq_broker.endpoint, invisible_time="1s").with_result_backend(backend)
    await broker.startup()
    yield broker
    await broker.shutdown()


def task_of(sender: PopMQBroker, name: str) -> "AsyncTaskiqDecoratedTask[..., Any]":
    return sender.register_task(lambda *_: None, task_name=name)


@pytest.mark.smoke
async def test_the_command_runs_tasks_in_processes_and_ends_when_it_is_told_to(
    sender: PopMQBroker, popmq_broker: Broker, tmp_path: Path
) -> None:
    who = task_of(sender, "who")
    asked = [await who.kiq(number) for number in range(20)]
    with Program(tmp_path, APP, *COMMAND, POPMQ_ENDPOINT=popmq_broker.endpoint) as program:
        found = [(await each.wait_result(check_interval=0.05, timeout=60)).return_value for each in asked]
        assert program.stop() == 0, program.log.read_text()
    assert [number for number, _ in found] == list(range(20))
    assert os.getpid() not in {process for _, process in found}
    await until_done(sender)


@pytest.mark.slow
async def test_a_task_whose_worker_was_killed_runs_in_another_one(
    sender: PopMQBroker, popmq_broker: Broker, tmp_path: Path
) -> None:
    sent = await task_of(sender, "dies_once").kiq(str(tmp_path / "died"))
    with Program(tmp_path, APP, *COMMAND, POPMQ_ENDPOINT=popmq_broker.endpoint):
        assert (await sent.wait_result(check_interval=0.05, timeout=60)).return_value == "lived"
    assert (tmp_path / "died").exists()
