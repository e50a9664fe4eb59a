"""PopMQBackend: results of Dramatiq's actors."""

import dramatiq
import pytest
from dramatiq.brokers.stub import StubBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits.backends import StubBackend
from dramatiq.results import ResultFailure, ResultMissing, Results, ResultTimeout

from popmq.testing import Broker, FakeClock
from popmq_integrations.dramatiq import PopMQBackend, PopMQBroker
from tests.integrations.dramatiq.conftest import Working
from tests.integrations.dramatiq.helpers import taken


def adding() -> "dramatiq.Actor[[int, int], int]":
    @dramatiq.actor(store_results=True, max_retries=0)
    def add(one: int, other: int) -> int:
        return one + other

    return add


def test_a_result_is_stored_with_the_ack_of_its_message(queues: PopMQBroker) -> None:
    sent = adding().send(1, 2)
    consumer, message = taken(queues)
    queues.emit_after("process_message", message, result=3)
    with pytest.raises(ResultMissing):
        sent.get_result()
    consumer.ack(message)
    consumer.close()
    assert sent.get_result(block=True) == 3


def test_an_exception_is_the_result_of_its_dead_letter(queues: PopMQBroker, working: Working) -> None:
    sent = adding().send(1, "two")  # type: ignore[arg-type]
    with working(), pytest.raises(ResultFailure) as failed:
        sent.get_result(block=True)
    assert failed.value.orig_exc_type == "TypeError"
    assert failed.value.orig_exc_msg == "unsupported operand type(s) for +: 'int' and 'str'"


def test_who_waits_is_told_of_a_message_whose_workers_died(
    queues: PopMQBroker, popmq_broker: Broker, popmq_clock: FakeClock
) -> None:
    sent = adding().send(1, 2)
    client = popmq_broker.client()
    client.groups.update("dramatiq.default", max_attempts=1)
    assert client.pop("dramatiq.default", "dramatiq.default")  # and is never heard of again
    popmq_clock.advance(60_000)
    with pytest.raises(ResultFailure, match="lease expired") as failed:
        sent.get_result(block=True)
    assert failed.value.orig_exc_type == "DeadLetter"


def test_a_result_that_is_not_there_in_time_is_said_to_be_late(queues: PopMQBroker) -> None:
    sent = adding().send(1, 2)
    with pytest.raises(ResultTimeout):
        sent.get_result(block=True, timeout=1)


def test_a_result_is_over_after_its_ttl(popmq_broker: Broker) -> None:
    backend = PopMQBackend(popmq_broker.endpoint)
    message: dramatiq.Message[int] = dramatiq.Message("default", "add", (), {}, {})
    backend.store_result(message, 1, ttl=60_000)
    assert backend.get_result(message) == 1
    backend.store_result(message, 1, ttl=0)
    with pytest.raises(ResultMissing):
        backend.get_result(message)
    backend.close()


def test_a_result_that_is_too_large_says_so_to_who_waits(queues: PopMQBroker, working: Working) -> None:
    @dramatiq.actor(store_results=True)
    def large() -> str:
        return "x" * 300_000

    sent = large.send()
    with working(), pytest.raises(ResultFailure, match="keeps at most 262144"):
        sent.get_result(block=True)


def test_the_result_of_a_member_of_a_group_is_there_before_its_ack(queues: PopMQBroker) -> None:
    sent = adding().message(1, 2).copy(options={"group_completion_uuid": "a group"})
    queues.enqueue(sent)
    consumer, message = taken(queues)
    queues.emit_after("process_message", message, result=3)
    assert sent.get_result() == 3
    consumer.ack(message)
    consumer.close()


def test_the_callback_of_a_group_finds_the_results_of_its_members(queues: PopMQBroker, working: Working) -> None:
    queues.add_middleware(GroupCallbacks(StubBackend()))
    add = adding()

    @dramatiq.actor(store_results=True)
    def total(members: list[dict[str, object]]) -> int:
        return sum(dramatiq.Message(**each).get_result() for each in members)  # type: ignore[arg-type]

    members = [add.message(number, number) for number in range(5)]
    done = total.message([member.asdict() for member in members])
    group = dramatiq.group(members)
    group.add_completion_callback(done)
    with working():
        group.run()
        assert done.get_result(block=True) == 20


def test_results_of_another_broker_of_dramatiq_are_stored_at_once(popmq_broker: Broker) -> None:
    stub = StubBroker()
    backend = PopMQBackend(popmq_broker.endpoint)
    stub.add_middleware(Results(backend=backend))
    dramatiq.set_broker(stub)
    add = adding()
    worker = dramatiq.Worker(stub, worker_threads=1, worker_timeout=20)
    worker.start()
    good, bad = add.send(1, 2), add.send(1, None)  # type: ignore[arg-type]
    assert good.get_result(block=True) == 3
    with pytest.raises(ResultFailure, match="actor raised TypeError"):
        bad.get_result(block=True)
    worker.stop()
    backend.close()


def test_a_producer_without_the_backend_s_middleware_leaves_the_keeping_to_who_asks(
    popmq_broker: Broker, working: Working
) -> None:
    plain = PopMQBroker(popmq_broker.endpoint)
    plain.enqueue(dramatiq.Message("default", "add", (1, 2), {}, {}, message_id="known"))
    asked: dramatiq.Message[int] = dramatiq.Message("default", "add", (), {}, {}, message_id="known")
    with pytest.raises(ResultMissing):
        PopMQBackend(popmq_broker.endpoint).get_result(asked)
    assert plain.client.groups.get("dramatiq.default").results_keep
    adding()
    with working():
        assert PopMQBackend(popmq_broker.endpoint).get_result(asked, block=True) == 3
    plain.close()
