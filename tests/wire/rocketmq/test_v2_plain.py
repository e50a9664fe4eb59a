"""Messages that have an id, a tag, a body and an origin only take a short way; its outcome is that of the long one."""

import random

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.contract.commands import NewMessage
from popmq_server.errors import BrokerError
from popmq_server.protocols.rocketmq import acking, messages, sending
from popmq_server.protocols.rocketmq.call import RocketmqCall
from popmq_server.protocols.rocketmq.status import OK
from popmq_server.values import plain
from popmq_server.values.message import length_prefixed
from tests.engine.work import calls

CALL = RocketmqCall("c", "GO", "", lambda: None)


def drawn(chance: random.Random) -> pb.Message:
    """A message with random fields, some of them beyond the limits."""
    system = pb.SystemProperties(
        message_id=chance.choice(["", " ", "0" * 34, "é" * 40, "x" * 128, "x" * 129]),
        born_host=chance.choice(["", "host", "h" * 64, "h" * 300]),
        body_encoding=chance.choice([pb.ENCODING_UNSPECIFIED, pb.IDENTITY, pb.IDENTITY, pb.GZIP]),
        message_type=chance.choice([pb.NORMAL, pb.NORMAL, pb.FIFO, pb.TRANSACTION]),
    )
    system.born_timestamp.seconds = chance.choice([0, 0, 1_700_000_000, -5, 1 << 40])
    message = pb.Message(body=chance.choice([b"", b"b", b"b" * 200, b"\x78" + b"b" * 20_000]), system_properties=system)
    rare = {
        "tag": chance.choice(["", "a", " ", "a|b", "a b", "t" * 64, "t" * 65, "é" * 20]),
        "message_group": "g",
        "trace_context": "00-1",
        "lite_topic": "l",
        "priority": 3,
    }
    for name, value in rare.items():
        if chance.random() < (0.5 if name == "tag" else 0.06):
            setattr(message.system_properties, name, value)
    if chance.random() < 0.06:
        message.system_properties.keys.append("k")
    if chance.random() < 0.06:
        message.user_properties["p"] = "v"
    if chance.random() < 0.06:
        message.system_properties.delivery_timestamp.seconds = 1_700_000_000
    return message


def outcome(read: object, message: pb.Message) -> object:
    try:
        return read(message)  # type: ignore[operator]
    except BrokerError as error:
        return type(error), getattr(error, "code", None), str(error)


def without_parts(message: pb.Message) -> tuple[NewMessage, str]:
    """What the short way stores. The parts that it hands over beside the bytes say the same as the bytes."""
    made, kind = messages.new_message(message)
    if made.plain is not None:
        message_id, body, tag, born_ms, born_host = made.plain
        assert made.data == plain.write(message_id, body, tag.decode(), born_ms, born_host.decode())
    return made._replace(plain=None), kind


@pytest.mark.parametrize("seed", range(4))
def test_the_short_way_stores_the_bytes_of_the_long_one_and_refuses_the_same(seed: int) -> None:
    chance, short = random.Random(seed), 0
    for _ in range(500):
        message = drawn(chance)
        expected = outcome(lambda one: (messages._checked(one), messages.kind_of(one)), message)
        assert outcome(without_parts, message) == expected
        short += messages._plain(message) is not None if isinstance(expected[0], NewMessage) else 0  # type: ignore[index]
    assert short > 10


def request(count: int) -> rpc.SendMessageRequest:
    system = pb.SystemProperties(message_id="0" * 34, born_host="h", message_type=pb.NORMAL)
    system.born_timestamp.seconds = 1_700_000_000
    message = pb.Message(topic=pb.Resource(name="t"), body=b"b" * 1024, system_properties=system)
    return rpc.SendMessageRequest(messages=[message] * count)


def stored(count: int) -> tuple[NewMessage, ...]:
    return sending._send(request(count), CALL).valid


@pytest.mark.parametrize("first", [0, 1, 127, 128, 16_383, 16_384, 1 << 40])
def test_the_answer_to_a_send_is_what_generated_code_would_encode(first: int) -> None:
    outgoing = stored(3)
    entries = [
        rpc.SendResultEntry(status=OK, message_id="0" * 34, offset=first + place) for place in range(len(outgoing))
    ]
    assert sending._stored(outgoing, first) == rpc.SendMessageResponse(status=OK, entries=entries).SerializeToString()


@pytest.mark.parametrize("seed", range(4))
def test_a_plain_message_is_delivered_with_the_bytes_of_the_long_way(seed: int) -> None:
    chance, short = random.Random(seed), 0
    topic = pb.Resource(name="t", resource_namespace="space")
    while short < 50:
        sent = outcome(lambda one: messages.new_message(one)[0].data, drawn(chance))
        if not isinstance(sent, bytes):
            continue
        where = chance.choice([0, 3, 200]), chance.choice([0, 5, 300, 1 << 40]), chance.choice([1, 2, 200])
        handle = b"h" * chance.choice([1, 28, 150])
        row = (sent, chance.choice([1, 1_700_000_000_000, 1_700_000_000_123]), *where, handle)
        kind = chance.choice(["NORMAL", "DELAY", "PRIORITY"])
        got = messages.response(row, length_prefixed([handle])[0], pb.Message(topic=topic).SerializeToString(), kind)
        message = messages.delivered(messages.DeliveredRow(*row[:5], handle.decode()), topic, kind)
        if got is not None:
            assert got == rpc.ReceiveMessageResponse(message=message).SerializeToString()
            short += 1


@pytest.mark.parametrize("message_id", ["", "m", "é" * 100])
def test_the_answer_to_an_ack_is_what_generated_code_would_encode(message_id: str) -> None:
    entries = [rpc.AckMessageEntry(message_id=message_id, receipt_handle="h" * size) for size in (28, 28, 150)]
    results = [
        rpc.AckMessageResultEntry(message_id=message_id, receipt_handle=entry.receipt_handle, status=OK)
        for entry in entries
    ]
    texts = [entry.receipt_handle for entry in entries]
    assert acking._acked(entries, texts) == rpc.AckMessageResponse(status=OK, entries=results).SerializeToString()


def test_a_message_of_a_batch_is_within_its_budget_of_calls() -> None:
    small, large = request(32), request(64)
    sending._send(large, CALL)
    assert (calls(lambda: sending._send(large, CALL)) - calls(lambda: sending._send(small, CALL))) / 32 <= 48
    few, many = stored(32), stored(64)
    assert (calls(lambda: sending._stored(many, 1)) - calls(lambda: sending._stored(few, 1))) / 32 <= 12
