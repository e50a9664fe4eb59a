"""The audit log: who did what as an operator, with which outcome; and nothing for polls of numbers."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import text_format

from popmq_proto.rocketmq import definition_pb2
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from popmq_server.protocols import auditing
from tests.wire.access.signing import KEYS, SignedStubs, signed, write_keys
from tests.wire.rocketmq.v2 import V2, resource
from tests.wire.stubs import CALL_S, Stubs, refusal


class Lines(logging.Handler):
    """The fields of each line, with the method."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.fields.append({"method": record.getMessage(), **record.__dict__["fields"]})


@pytest.fixture
def lines() -> Iterator[Lines]:
    found = Lines()
    auditing.log.addHandler(found)
    yield found
    auditing.log.removeHandler(found)


def test_every_call_of_admin_is_audited_but_for_polls() -> None:
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["Admin"].methods}
    left_out = {method for method in methods if not auditing.is_audited(method)}
    assert left_out == {
        "GetTopic", "ListTopics", "GetGroup", "ListGroups", "GetStats", "ListLeases", "ListOwners", "ListSessions",
        "ListMessageGroups", "ListDeadLetterReasons", "ListDelayed", "ListTransactions", "GetInfo", "ListAccessKeys",
        "GetHistory", "ListBrokers",
    }  # fmt: skip


def test_a_change_is_written_with_key_address_outcome_and_request(tmp_path: Path, lines: Lines) -> None:
    write_keys(tmp_path / "keys.toml", KEYS)
    with EmbeddedBroker(tmp_path / "data", sync="none", access_keys=tmp_path / "keys.toml") as broker:
        with SignedStubs(broker.endpoint, "operator") as operator:
            operator.create_topic("orders")
            operator.admin.ListTopics(pb.ListTopicsRequest(), timeout=CALL_S)
        with SignedStubs(broker.endpoint, "sender") as sender:
            refusal(sender.admin.DeleteTopic, pb.DeleteTopicRequest(name="orders"))
        with Stubs(broker.endpoint) as stranger:
            refusal(stranger.admin.DeleteTopic, pb.DeleteTopicRequest(name="orders"))
    made, denied = lines.fields
    assert "127.0.0.1" in made.pop("peer")
    assert 'name: "orders"' in made.pop("request")
    assert made == {"method": "CreateTopic", "key": "operator", "code": "OK"}
    assert (denied["method"], denied["key"], denied["code"]) == ("DeleteTopic", "sender", "PERMISSION_DENIED")


def sent(stubs: Stubs, **fields: Any) -> pb.SendResult:
    message = pb.Message(body=b"secret", **fields)
    answer: pb.SendResponse = stubs.broker.Send(pb.SendRequest(topic="later", messages=[message]), timeout=CALL_S)
    return answer.results[0]


def use_as_client(stubs: Stubs, v2: V2, sender: Stubs) -> None:
    """Each call of a client that an operator may make too."""
    recalled, later = (sent(sender, delay_ms=60_000).recall_handle for _ in range(2))
    ended, other = (sent(sender, transaction=True).transaction_id for _ in range(2))
    end = pb.TransactionEnd(transaction_id=ended, resolution=pb.ROLLBACK)
    stubs.broker.Recall(pb.RecallRequest(topic="later", recall_handle=recalled), timeout=CALL_S)
    stubs.broker.EndTransaction(pb.EndTransactionRequest(ends=[end]), timeout=CALL_S)
    stubs.broker.Peek(pb.PeekRequest(topic="later", group="billing"), timeout=CALL_S)
    assert v2.code("RecallMessage", topic=resource("later"), recall_handle=later) == "OK"
    rollback: Any = {"resolution": definition_pb2.ROLLBACK}
    assert v2.code("EndTransaction", topic=resource("later"), transaction_id=other, **rollback) == "OK"


def test_calls_of_clients_are_audited_if_only_the_right_admin_allowed_them(tmp_path: Path, lines: Lines) -> None:
    write_keys(tmp_path / "keys.toml", KEYS | {"client": ["send:later", "receive:later/billing"]})
    with EmbeddedBroker(tmp_path / "data", sync="none", access_keys=tmp_path / "keys.toml") as broker:

        def v2_of(name: str) -> V2:
            return V2(broker.endpoint, **{header.replace("-", "_"): value for header, value in signed(name)})

        with SignedStubs(broker.endpoint, "operator") as operator, SignedStubs(broker.endpoint, "client") as client:
            operator.create_topic("later", type=pb.DELAY)
            operator.create_group("billing")
            client.attach(topic="later")
            lines.fields.clear()
            with v2_of("client") as calls:
                use_as_client(client, calls, client)
            client.broker.ReleaseOwner(pb.ReleaseOwnerRequest(group="billing", owner="query"), timeout=CALL_S)
            assert lines.fields == []
            with v2_of("operator") as calls:
                use_as_client(operator, calls, client)
            operator.broker.ReleaseOwner(pb.ReleaseOwnerRequest(group="billing", owner="query"), timeout=CALL_S)
            again = pb.RecallRequest(topic="later", recall_handle="x")
            assert refusal(operator.broker.Recall, again).code == "INVALID_FIELD"
            with v2_of("operator") as calls:
                assert calls.code("RecallMessage", topic=resource("later"), recall_handle="x") == "BAD_REQUEST"
    assert [(line["method"], line["key"], line["code"]) for line in lines.fields] == [
        ("Recall", "operator", "OK"),
        ("EndTransaction", "operator", "OK"),
        ("Peek", "operator", "OK"),
        ("v2.RecallMessage", "operator", "OK"),
        ("v2.EndTransaction", "operator", "OK"),
        ("ReleaseOwner", "operator", "OK"),
        ("Recall", "operator", "INVALID_FIELD"),
        ("v2.RecallMessage", "operator", "INVALID_FIELD"),
    ]
    assert lines.fields[2]["request"] == 'topic: "later" group: "billing"'
    assert 'topic { name: "later" }' in lines.fields[3]["request"]


def test_an_audit_line_of_a_broker_without_access_keys_has_no_key(stubs: Stubs, lines: Lines) -> None:
    refusal(stubs.admin.DeleteTopic, pb.DeleteTopicRequest(name="nowhere"))
    (line,) = lines.fields
    assert (line["key"], line["code"], line["request"]) == ("", "TOPIC_NOT_FOUND", 'name: "nowhere"')


@pytest.mark.slow
def test_a_stream_is_written_when_it_ends(stubs: Stubs, lines: Lines) -> None:
    assert list(stubs.admin.Backup(pb.BackupRequest(), timeout=CALL_S))
    assert [(line["method"], line["code"]) for line in lines.fields] == [("Backup", "OK")]


def test_a_bug_and_bytes_that_are_not_a_request_are_audited_too(
    stubs: Stubs, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ValueError("a bug")

    call: Any = stubs.channel.unary_unary("/popmq.v1.Admin/DeleteTopic")
    with pytest.raises(grpc.RpcError):
        call(b"\xff\xff", timeout=CALL_S)
    monkeypatch.setattr("popmq_server.protocols.native.admin.read", fail)
    refusal(stubs.admin.DeleteTopic, pb.DeleteTopicRequest(name="x"))
    assert [line["code"] for line in lines.fields] == ["INVALID_FIELD", "INTERNAL"]
    assert lines.fields[0]["request"] == "2 bytes that are not a request"


def test_a_request_can_neither_forge_a_line_nor_hide_a_part_of_one(stubs: Stubs, lines: Lines) -> None:
    refusal(stubs.admin.DeleteTopic, pb.DeleteTopicRequest(name="a\n\x1b\x85\u2028\u202eé"))
    assert lines.fields[0]["request"] == r'name: "a\n\033\u0085\u2028\u202eé"'


def test_a_long_line_is_cut(stubs: Stubs, lines: Lines) -> None:
    refusal(stubs.admin.DeleteTopic, pb.DeleteTopicRequest(name="x" * 3_000))
    assert len(lines.fields[0]["request"]) == auditing.REQUEST_MAX + 1


def test_the_rendered_part_of_a_request_does_not_grow_with_it(
    stubs: Stubs, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text is made on the event loop: of 19 MB of offsets it took 18 s, in which no other call was served."""
    rendered: list[int] = []
    render = text_format.MessageToString

    def count(message: Any, **options: Any) -> str:
        rendered.append(message.ByteSize())
        return render(message, **options)

    monkeypatch.setattr(text_format, "MessageToString", count)
    offsets, ids = [1] * 4_096, ["x" * 128] * 4_096
    refusal(stubs.admin.RedriveDeadLetters, pb.RedriveDeadLettersRequest(group="g", offsets=offsets, message_ids=ids))
    refusal(stubs.admin.CreateTopic, pb.CreateTopicRequest(topic=pb.Topic(name="x" * 900_000)))
    refusal(stubs.admin.RedriveDeadLetters, pb.RedriveDeadLettersRequest(group="g", offsets=[1] * 2_000_000))
    assert len(rendered) == 2, "what is no valid request is not rendered"
    assert max(rendered) < 2 * auditing.TEXT_MAX
    first, second, third = (line["request"] for line in lines.fields)
    assert first.endswith('bytes without offsets, message_ids: group: "g"')
    assert second.startswith("900008 bytes without the ends of texts: topic")
    assert third == "2000007 bytes that are not a request"


def test_the_level_of_the_log_does_not_silence_the_audit() -> None:
    before = logging.getLogger().level
    logging.getLogger().setLevel(logging.ERROR)
    try:
        assert auditing.log.isEnabledFor(logging.INFO)
    finally:
        logging.getLogger().setLevel(before)
