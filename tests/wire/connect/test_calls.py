"""Calls over HTTP: each verb and content-type, refusals as Connect writes them, deadlines, and who has gone."""

from __future__ import annotations

import base64
import gzip
import json
import socket
from urllib.parse import quote, urlsplit

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.connect.conftest import Answered, Http
from tests.wire.gone import Gone
from tests.wire.parked import Parked
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> Gone:
    return Gone(monkeypatch)


def shop(http_: Http) -> None:
    """One topic, one group."""
    assert http_.call("Admin/CreateTopic", {"topic": {"name": TOPIC, "queues": 1}}).status == 200
    assert http_.call("Admin/CreateGroup", {"group": {"name": GROUP}}).status == 200


def sent(http_: Http, body: bytes) -> Answered:
    return http_.call("Broker/Send", {"topic": TOPIC, "messages": [{"body": base64.b64encode(body).decode()}]})


def test_a_message_is_sent_popped_and_acked_with_json(http_: Http) -> None:
    shop(http_)
    assert len(sent(http_, b"hello").json["results"]) == 1
    (delivery,) = http_.call("Broker/Pop", {"topic": TOPIC, "group": GROUP, "maxMessages": 5}).json["deliveries"]
    assert base64.b64decode(delivery["message"]["body"]) == b"hello"
    assert http_.call("Broker/Ack", {"group": GROUP, "handles": [delivery["handle"]]}).json == {}
    numbers = http_.call("Admin/GetStats", {"topic": TOPIC, "group": GROUP}).json["groups"]
    assert not {"ready", "leased"} & numbers[0].keys()


def test_fields_may_have_the_names_of_the_contract(http_: Http) -> None:
    shop(http_)
    assert http_.call("Broker/Pop", {"topic": TOPIC, "group": GROUP, "max_messages": 1, "wait_ms": "0"}).status == 200


def test_protobuf_goes_in_and_comes_out_as_over_grpc(http_: Http, served: EmbeddedBroker) -> None:
    shop(http_)
    request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(message_id="m", body=b"hello")])
    kind = "application/proto"
    answer = http_.asked("POST", "/popmq.v1.Broker/Send", request.SerializeToString(), content_type=kind)
    assert (answer.status, answer.headers["content-type"]) == (200, kind)
    assert pb.SendResponse.FromString(answer.body).results[0].message_id == "m"
    with Stubs(served.endpoint) as stubs:
        assert stubs.pop().deliveries[0].message.body == b"hello"


@pytest.mark.parametrize("encoded", ["json", "proto"])
def test_get_reads_without_a_body(http_: Http, encoded: str) -> None:
    shop(http_)
    if encoded == "json":
        query = f"connect=v1&encoding=json&message={quote(json.dumps({'name': TOPIC}))}"
    else:
        raw = base64.urlsafe_b64encode(pb.GetTopicRequest(name=TOPIC).SerializeToString()).decode().rstrip("=")
        query = f"connect=v1&encoding=proto&base64=1&message={raw}"
    answer = http_.asked("GET", f"/popmq.v1.Admin/GetTopic?{query}")
    assert answer.status == 200
    found = (
        answer.json["topic"]["name"] if encoded == "json" else pb.GetTopicResponse.FromString(answer.body).topic.name
    )
    assert found == TOPIC


@pytest.mark.parametrize(
    "message",
    ["***&base64=1", "e30%3D%3D%3D%3D&base64=1", "e&base64=1", "%7B%7D&base64=1", "%7B%22name%22%3A%22%FF%22%7D"],
)
def test_a_query_that_is_no_base64_or_no_text_is_refused(http_: Http, message: str) -> None:
    answer = http_.asked("GET", f"/popmq.v1.Admin/GetTopic?encoding=json&message={message}")
    assert (answer.status, answer.json["code"]) == (400, "invalid_argument")
    assert "the query cannot be read" in answer.json["message"]


def test_get_changes_nothing(http_: Http) -> None:
    answer = http_.asked(
        "GET", f"/popmq.v1.Admin/DeleteTopic?encoding=json&message={quote(json.dumps({'name': TOPIC}))}"
    )
    assert (answer.status, answer.headers["allow"]) == (405, "POST")


def test_every_method_that_get_may_call_is_marked_as_one_that_reads() -> None:
    reading = {
        method.name
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if method.GetOptions().idempotency_level
    }
    writing = {
        method.name
        for service in pb.DESCRIPTOR.services_by_name.values()
        for method in service.methods
        if not method.name.startswith(("Get", "List", "Browse", "LookUp", "Why", "Peek", "Query"))
    }
    assert "GetTopic" in reading
    assert not reading & writing


def test_a_refusal_has_the_code_of_grpc_and_the_whole_error_info(http_: Http) -> None:
    answer = http_.call("Broker/Pop", {"topic": "nope", "group": GROUP})
    assert answer.status == 404
    assert answer.json["code"] == "not_found"
    (detail,) = answer.json["details"]
    info = pb.ErrorInfo.FromString(base64.b64decode(detail["value"] + "=" * (-len(detail["value"]) % 4)))
    assert detail["type"] == "popmq.v1.ErrorInfo"
    assert pb.Code.Name(info.code) == detail["debug"]["code"] == "TOPIC_NOT_FOUND"
    assert info.message == answer.json["message"]
    assert info.action == detail["debug"]["action"] == "popmq topic create nope"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"topic": "orders"', "Expecting ',' delimiter"),
        (b'{"topik": "orders"}', 'no field named "topik"'),
        (b'{"topic": 5}', "topic"),
        (b'["topic"]', "JSON"),
        (b'{"topic": "\xff"}', "not UTF-8"),
        (b'{"messages": ' + b"[" * 20_000 + b"]" * 20_000 + b"}", "nested too deeply"),
        (b'{"topic": "a", "topic": "b"}', "topic"),
        (b'{"\\ud800": "orders"}', "half of a surrogate pair"),
        (b'{"messages": [{"encoding": "\\uDFFF"}]}', "half of a surrogate pair"),
        (b"[" * 200_001, "more than 200,000 elements"),
        (b'{"messages": [{"body": "***"}]}', "messages[0].body is not base64"),
        (b'{"messages": [{"body": "aGk="}, {"body": "hello world"}]}', "messages[1].body is not base64"),
        (b'{"messages": [{"body": "aGk==="}]}', "messages[0].body is not base64"),
        (b'{"messages": {"body": "hello"}}', "messages.body is not base64"),
        (b'{"messages": [{"body": "' + b"A" * (7 << 20) + b'"}]}', "more than any body may have"),
        (b'{"messages": [{"priority": 1e99}]}', "priority"),
    ],
)
def test_what_is_not_the_json_of_the_request_is_refused_with_its_place(http_: Http, body: bytes, told: str) -> None:
    answer = http_.asked("POST", "/popmq.v1.Broker/Send", body, content_type="application/json")
    assert (answer.status, answer.json["code"]) == (400, "invalid_argument")
    assert told in answer.json["message"]
    assert answer.json["details"][0]["debug"]["code"] == "INVALID_FIELD"
    assert http_.call("Admin/ListTopics").status == 200, "and the connection goes on"


@pytest.mark.parametrize(
    ("verb", "path", "headers", "status", "code"),
    [
        ("POST", "/", {"content_type": "application/json"}, 404, "unimplemented"),
        ("POST", "/popmq.v1.Broker/Sent", {"content_type": "application/json"}, 404, "unimplemented"),
        ("POST", "/apache.rocketmq.v2.MessagingService/SendMessage", {}, 404, "unimplemented"),
        ("POST", "/popmq.v1.Broker/Session", {"content_type": "application/json"}, 501, "unimplemented"),
        ("PUT", "/popmq.v1.Broker/Send", {"content_type": "application/json"}, 405, "unimplemented"),
        ("POST", "/popmq.v1.Broker/Send", {"content_type": "text/plain"}, 415, "unimplemented"),
        ("POST", "/popmq.v1.Broker/Send", {"content_type": "application/json; charset=latin-1"}, 415, "unimplemented"),
        (
            "POST",
            "/popmq.v1.Broker/Send",
            {"content_type": "application/json", "content_encoding": "br"},
            501,
            "unimplemented",
        ),
        (
            "POST",
            "/popmq.v1.Broker/Send",
            {"content_type": "application/json", "connect_timeout_ms": "soon"},
            400,
            "invalid_argument",
        ),
    ],
)
def test_a_request_that_is_no_call_is_told_what_to_send(
    http_: Http, verb: str, path: str, headers: dict[str, str], status: int, code: str
) -> None:
    answer = http_.asked(verb, path, b"{}", **headers)
    assert (answer.status, answer.json["code"]) == (status, code)
    assert answer.json["message"]


def test_gzip_is_unpacked_and_no_bomb_is(http_: Http) -> None:
    shop(http_)
    body = json.dumps({"topic": TOPIC, "messages": [{"body": "aGk="}]}).encode()
    packed = {"content_type": "application/json", "content_encoding": "gzip"}
    assert http_.asked("POST", "/popmq.v1.Broker/Send", gzip.compress(body), **packed).status == 200
    for raw, status, told in (
        (gzip.compress(bytes(64 << 20)), 429, "at most"),
        (gzip.compress(body)[:-9], 400, "in the middle"),
        (b"plain", 400, "not valid gzip"),
        (gzip.compress(body) + gzip.compress(b" "), 400, "follow the gzip"),
    ):
        answer = http_.asked("POST", "/popmq.v1.Broker/Send", raw, **packed)
        assert (answer.status, told in answer.json["message"]) == (status, True)
    query = f"encoding=json&compression=gzip&base64=1&message={base64.urlsafe_b64encode(gzip.compress(b'{}')).decode()}"
    assert http_.asked("GET", f"/popmq.v1.Admin/ListTopics?{query}").status == 200


def test_a_deadline_ends_a_call(http_: Http) -> None:
    shop(http_)
    answer = http_.call("Broker/Pop", {"topic": TOPIC, "group": GROUP, "waitMs": 60_000}, connect_timeout_ms="50")
    assert (answer.status, answer.json["code"]) == (504, "deadline_exceeded")


def test_a_client_that_goes_away_takes_no_message(
    http_: Http, served: EmbeddedBroker, parked: Parked, gone: Gone
) -> None:
    shop(http_)
    address = urlsplit(served.http_url)
    with socket.create_connection((str(address.hostname), address.port or 0)) as waiting:
        body = json.dumps({"topic": TOPIC, "group": GROUP, "waitMs": 60_000}).encode()
        head = f"POST /popmq.v1.Broker/Pop HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        waiting.sendall(head.encode() + b"content-type: application/json\r\n\r\n" + body)
        parked.wait_for(1)
    gone.wait_for(1)
    sent(http_, b"for the next")
    (delivery,) = http_.call("Broker/Pop", {"topic": TOPIC, "group": GROUP}).json["deliveries"]
    assert delivery["attempt"] == 1


def test_large_json_goes_both_ways(http_: Http) -> None:
    shop(http_)
    body = base64.b64encode(b"x" * (4 << 20)).decode()
    messages = [{"body": body}, {"body": body}, {"body": body}]
    assert len(http_.call("Broker/Send", {"topic": TOPIC, "messages": messages}).json["results"]) == 3
    found = http_.call("Broker/Pop", {"topic": TOPIC, "group": GROUP, "maxBytes": 16 << 20}).json["deliveries"]
    assert [len(base64.b64decode(each["message"]["body"])) for each in found] == [4 << 20] * 3


def test_requests_of_one_connection_are_answered_in_their_order(served: EmbeddedBroker) -> None:
    address = urlsplit(served.http_url)
    asked = "GET /popmq.v1.Admin/ListTopics?encoding=json&message={{}} HTTP/1.1\r\nhost: localhost\r\nx-n: {}\r\n\r\n"
    with socket.create_connection((str(address.hostname), address.port or 0), timeout=CALL_S) as pipelined:
        pipelined.sendall("".join(asked.format(number) for number in range(20)).encode())
        answers = b""
        while answers.count(b"HTTP/1.1 200") < 20:
            answers += pipelined.recv(65_536)
    assert answers.count(b"{}") == 20
