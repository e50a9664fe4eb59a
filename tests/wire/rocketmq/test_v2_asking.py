"""What an operator asks of official clients over their Telemetry streams."""

from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.protocols.rocketmq import clients
from tests.wire.rocketmq.v2 import CLIENT, V2, Obliging
from tests.wire.stubs import CALL_S, TOPIC, Stubs, refusal


def stack(shop: Stubs, client_id: str = CLIENT) -> Any:
    return shop.admin.GetClientStack(native.GetClientStackRequest(client_id=client_id), timeout=CALL_S)


def test_a_client_tells_the_stacks_of_its_threads(shop: Stubs, v2: V2) -> None:
    Obliging(v2.channel)
    answer = stack(shop)
    assert (answer.code, answer.text) == ("OK", "main: waiting")


def test_a_listener_handles_a_stored_message_once_and_nothing_is_leased(shop: Stubs, v2: V2) -> None:
    shop.send(b"one", b"two")
    client = Obliging(v2.channel)
    request = native.VerifyMessageRequest(client_id=CLIENT, topic=TOPIC, queue=0, offset=1)
    assert shop.admin.VerifyMessage(request, timeout=CALL_S).code == "OK"
    (found,) = client.verified
    assert (found.topic.name, found.body, found.system_properties.queue_offset) == (TOPIC, b"two", 1)
    assert found.system_properties.delivery_attempt == 1
    assert len(shop.pop().deliveries) == 2


def test_an_answer_in_the_wrong_case_of_the_command_counts(shop: Stubs, v2: V2) -> None:
    shop.send(b"one")
    with v2.telemetry() as telemetry:
        telemetry.agree(publishing=pb.Publishing())
        request = native.VerifyMessageRequest(client_id=CLIENT, topic=TOPIC)
        pending = shop.admin.VerifyMessage.future(request, timeout=CALL_S)
        asked = telemetry.hear().verify_message_command
        telemetry.say(status=pb.Status(code=pb.FAILED_TO_CONSUME_MESSAGE, message="no"), verify_message_command=asked)
        answer = pending.result()
    assert (answer.code, answer.text) == ("FAILED_TO_CONSUME_MESSAGE", "no")


def test_a_client_that_is_not_there_or_has_no_stream_cannot_be_asked(shop: Stubs, v2: V2) -> None:
    v2.call("Heartbeat", client_type=pb.PRODUCER)
    for client_id in (CLIENT, "nobody"):
        refused = refusal(shop.admin.GetClientStack, native.GetClientStackRequest(client_id=client_id))
        assert (refused.code, refused.info.field) == ("CLIENT_NOT_FOUND", "client_id")


@pytest.mark.slow
def test_a_client_that_does_not_answer_is_reported(shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "ANSWER_S", 0.01)
    with v2.telemetry() as telemetry:
        telemetry.agree(publishing=pb.Publishing())
        refused = refusal(shop.admin.GetClientStack, native.GetClientStackRequest(client_id=CLIENT))
        assert refused.code == "UNAVAILABLE"
        assert telemetry.hear().HasField("print_thread_stack_trace_command")
        telemetry.say(thread_stack_trace=rpc.ThreadStackTrace(nonce="late"))
        assert telemetry.agree(publishing=pb.Publishing()).status.code == pb.OK


def test_a_message_that_is_not_there_cannot_be_verified(shop: Stubs, v2: V2) -> None:
    Obliging(v2.channel)
    request = native.VerifyMessageRequest(client_id=CLIENT, topic=TOPIC, offset=7)
    assert refusal(shop.admin.VerifyMessage, request).code == "MESSAGE_NOT_FOUND"
