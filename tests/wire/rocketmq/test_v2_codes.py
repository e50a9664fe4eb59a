"""Every code that docs/rocketmq.md says is answered: something provokes it, and nothing else is listed."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_proto.v1 import popmq_pb2 as native
from popmq_server.clock import FakeClock
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.errors import RETRYABLE, Refused
from popmq_server.protocols.rocketmq.status import code_of
from tests.wire.access.signing import write_keys
from tests.wire.rocketmq.v2 import V2, message, resource
from tests.wire.stubs import GROUP, TOPIC, Stubs

PAGE = Path(__file__).parents[3] / "docs" / "rocketmq.md"
Provoke = Callable[[Stubs, V2, pytest.MonkeyPatch], int]
#: Longer ones are functions that are named after their code.
PROVOKED: dict[str, Provoke] = {
    "OK": lambda shop, v2, patch: sent(v2),
    "BAD_REQUEST": lambda shop, v2, patch: code(rpc.SendMessageResponse.FromString(v2.raw("SendMessage", b"\xff"))),
    "ILLEGAL_ACCESS_POINT": lambda shop, v2, patch: route(
        v2, TOPIC, scheme=pb.IPv4, addresses=[pb.Address(host="", port=1)]
    ),
    "ILLEGAL_TOPIC": lambda shop, v2, patch: route(v2, "a b"),
    "ILLEGAL_CONSUMER_GROUP": lambda shop, v2, patch: v2.receive(group="a b").code,
    "ILLEGAL_MESSAGE_TAG": lambda shop, v2, patch: sent(v2, tag="a|b"),
    "ILLEGAL_MESSAGE_KEY": lambda shop, v2, patch: sent(v2, keys=[" "]),
    "ILLEGAL_MESSAGE_GROUP": lambda shop, v2, patch: sent(v2, message_group="g" * 64),
    "ILLEGAL_MESSAGE_PROPERTY_KEY": lambda shop, v2, patch: sent(v2, properties={"KEYS": "x"}),
    "INVALID_TRANSACTION_ID": lambda shop, v2, patch: code(
        v2.call("EndTransaction", topic=resource(TOPIC), transaction_id="nonsense", resolution=pb.COMMIT)
    ),
    "ILLEGAL_MESSAGE_ID": lambda shop, v2, patch: sent(v2, message_id=""),
    "ILLEGAL_FILTER_EXPRESSION": lambda shop, v2, patch: (
        v2.receive(filter_expression=pb.FilterExpression(type=pb.SQL, expression="a >")).code
    ),
    "ILLEGAL_POLLING_TIME": lambda shop, v2, patch: v2.receive(poll_ms=-1).code,
    "ILLEGAL_INVISIBLE_TIME": lambda shop, v2, patch: v2.receive(invisible_s=43_201).code,
    "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE": lambda shop, v2, patch: sent(v2, message_group="g"),
    "UNRECOGNIZED_CLIENT_TYPE": lambda shop, v2, patch: code(v2.call("Heartbeat")),
    "MESSAGE_CORRUPTED": lambda shop, v2, patch: code(v2.send()),
    "ILLEGAL_OFFSET": lambda shop, v2, patch: offset(v2, "UpdateOffset", offset=-1),
    "ILLEGAL_LITE_TOPIC": lambda shop, v2, patch: sent(v2, lite_topic="a.b"),
    "MESSAGE_NOT_FOUND": lambda shop, v2, patch: v2.receive().code,
    "TOPIC_NOT_FOUND": lambda shop, v2, patch: route(v2, "nobody"),
    "CONSUMER_GROUP_NOT_FOUND": lambda shop, v2, patch: v2.receive(group="nobody").code,
    "OFFSET_NOT_FOUND": lambda shop, v2, patch: offset(v2, "GetOffset"),
    "MESSAGE_BODY_TOO_LARGE": lambda shop, v2, patch: code(v2.send(message(b"x" * ((4 << 20) + 1)))),
    "MESSAGE_BODY_EMPTY": lambda shop, v2, patch: code(v2.send(message(b""))),
    "MESSAGE_PROPERTIES_TOO_LARGE": lambda shop, v2, patch: sent(v2, properties={"a": "x" * (16 << 10)}),
}
#: At these codes clients try again after a pause.
AGAIN = {pb.TOO_MANY_REQUESTS, pb.LITE_TOPIC_QUOTA_EXCEEDED}
#: Provoked beside what they belong to.
ELSEWHERE = {"LITE_TOPIC_QUOTA_EXCEEDED", "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", "UNAUTHORIZED"}


@pytest.mark.parametrize("code", sorted(RETRYABLE))
def test_what_may_succeed_later_has_a_code_at_which_clients_try_again(code: str) -> None:
    assert code_of(Refused(code, "")) in AGAIN


def listed() -> dict[str, int]:
    """The codes of the page's table."""
    rows = re.findall(r"^\| (\d{5}) \| ([A-Z_]+) \|", PAGE.read_text(), re.MULTILINE)
    return {name: int(number) for number, name in rows}


def provokes(provoke: Provoke) -> Provoke:
    """Enters a function under the code that it is named after."""
    PROVOKED[provoke.__name__.upper()] = provoke
    return provoke


def code(answer: Any) -> int:
    number: int = answer.status.code
    return number


def sent(v2: V2, **system: Any) -> int:
    return code(v2.send(message(**system)))


def route(v2: V2, topic: str, **endpoints: Any) -> int:
    return code(v2.call("QueryRoute", topic=resource(topic), endpoints=pb.Endpoints(**endpoints)))


def offset(v2: V2, name: str, group: str = GROUP, **fields: Any) -> int:
    queue = pb.MessageQueue(topic=resource(TOPIC), id=0)
    return code(v2.call(name, group=resource(group), message_queue=queue, **fields))


@provokes
def multiple_results(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    v2.send(message())
    (good,) = v2.receive().messages
    bad = pb.Message(system_properties=pb.SystemProperties(message_id="x", receipt_handle="nonsense"))
    return code(v2.ack(good, bad))


@provokes
def invalid_receipt_handle(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    nobody = pb.Message(system_properties=pb.SystemProperties(message_id="x", receipt_handle="nonsense"))
    return code(v2.ack(nobody))


@provokes
def client_id_required(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    with V2(v2.endpoint, client_id="") as nobody:
        return code(nobody.call("Heartbeat"))


@provokes
def invalid_client_properties(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    with v2.telemetry() as telemetry:
        return code(telemetry.agree(publishing=pb.Publishing(), client_properties={"1": ""}))


@provokes
def forbidden(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    shop.create_topic("closed", permission=native.READ_ONLY)
    return code(v2.send(message(topic="closed")))


@provokes
def precondition_failed(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    v2.receive()  # the group pops
    return offset(v2, "UpdateOffset", offset=0)


@provokes
def too_many_requests(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    shop.create_topic("narrow", quota=native.Quota(send_messages_per_s=1))
    return [code(v2.send(message(topic="narrow"))) for _ in range(4)][-1]


@provokes
def internal_server_error(shop: Stubs, v2: V2, patch: pytest.MonkeyPatch) -> int:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    patch.setattr("popmq_server.protocols.rocketmq.sending.messages.new_message", broken)
    return sent(v2)


@pytest.mark.parametrize("name", PROVOKED)
def test_every_code_is_answered_to_what_the_page_says(
    shop: Stubs, v2: V2, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    assert pb.Code.Name(PROVOKED[name](shop, v2, monkeypatch)) == name


def test_the_page_lists_what_is_provoked_by_its_number() -> None:
    assert listed() == {name: pb.Code.Value(name) for name in listed()}
    assert listed().keys() == PROVOKED.keys() | ELSEWHERE


def test_every_v2_call_without_an_access_key_is_unauthorized(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    write_keys(keys, {"root": ["*"]})
    with (
        EmbeddedBroker(tmp_path / "data", clock=FakeClock(), sync="none", access_keys=keys) as broker,
        V2(broker.endpoint) as nobody,
    ):
        assert nobody.code("Heartbeat", client_type=pb.PRODUCER) == "UNAUTHORIZED"
        assert pb.Code.Name(nobody.receive().code) == "UNAUTHORIZED"
