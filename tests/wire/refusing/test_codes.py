"""Every Code: its gRPC status is the contract's, and some call provokes it."""

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import queries
from popmq_server.embedded.loop import long_poll
from popmq_server.embedded.rules.delivery import token_pop
from popmq_server.embedded.state import space
from popmq_server.embedded.store import lmdb as storage
from popmq_server.embedded.store.journal.changes import JournaledTransaction
from popmq_server.embedded.store.store import Store
from popmq_server.embedded.writer import admitted, core
from popmq_server.errors import RETRYABLE, CommitFailed
from popmq_server.protocols.refusals import STATUS_OF_CODE
from popmq_server.values.handles import TransactionId, transaction_text
from tests.wire.contract import documented
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Refusal, Stubs, codes, handles, refusal

#: Codes of the contract that this release never answers with, and why.
RESERVED = {
    "UNAUTHENTICATED": "there are no users yet",
    "PERMISSION_DENIED": "there are no users yet",
    "UNSUPPORTED": "all of the contract is served",
    "LITE_SUBSCRIPTION_QUOTA": "only RocketMQ clients subscribe to lite topics: test_lite.py",
}

Provoke = Callable[[Stubs, pytest.MonkeyPatch], Refusal]
#: Longer ones are functions that are named after their code.
PROVOKED: dict[str, Provoke] = {
    "INVALID_FIELD": lambda shop, patch: send(shop, messages=[]),
    "CLIENT_NOT_FOUND": lambda shop, patch: refusal(
        shop.admin.GetClientStack, pb.GetClientStackRequest(client_id="nobody")
    ),
    "TOPIC_NOT_FOUND": lambda shop, patch: send(shop, topic="nobody"),
    "GROUP_NOT_FOUND": lambda shop, patch: refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group="nobody")),
    "OWNER_NOT_FOUND": lambda shop, patch: refusal(
        shop.broker.ReleaseOwner, pb.ReleaseOwnerRequest(group=GROUP, owner="nobody")
    ),
    "ALREADY_EXISTS": lambda shop, patch: refusal(
        shop.admin.CreateTopic, pb.CreateTopicRequest(topic=pb.Topic(name=TOPIC, queues=9))
    ),
    "TRANSACTION_NOT_FOUND": lambda shop, patch: end(shop),
    "TRANSACTION_ENDED": lambda shop, patch: end(shop, pb.COMMIT, pb.ROLLBACK),
    "WRONG_CONSUME_MODE": lambda shop, patch: refusal(
        shop.broker.UpdateOffsets, pb.UpdateOffsetsRequest(topic=TOPIC, group=GROUP, offsets={0: 0})
    ),
    "SCHEDULE_NOT_FOUND": lambda shop, patch: refusal(shop.admin.GetSchedule, pb.GetScheduleRequest(name="nobody")),
    "FILTER_INVALID": lambda shop, patch: refusal(
        shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, filter=pb.Filter(sql92="a = "))
    ),
}


def provokes(provoke: Provoke) -> Provoke:
    """Enters a function under the code that it is named after."""
    PROVOKED[provoke.__name__.upper()] = provoke
    return provoke


def entry(info: pb.ErrorInfo) -> Refusal:
    """A refused entry of a call that was served has no gRPC status of its own."""
    return Refusal(STATUS_OF_CODE[pb.Code.Name(info.code)], info)


def leave_on_disk(patch: pytest.MonkeyPatch, free_bytes: int) -> None:
    """A disk that is all but full; the broker is set to look at it before every commit."""
    patch.setattr(Store, "disk_free", lambda self: free_bytes)
    patch.setattr(space, "LOOK_S", -1.0)


def send(shop: Stubs, **fields: Any) -> Refusal:
    return refusal(shop.broker.Send, pb.SendRequest(**{"topic": TOPIC, "messages": [pb.Message(body=b"x")], **fields}))


@provokes
def forbidden(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.create_topic("closed", permission=pb.READ_ONLY)
    return send(shop, topic="closed")


@provokes
def invalid_handle(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    (result,) = shop.broker.Ack(pb.AckRequest(group=GROUP, handles=["x"]), timeout=CALL_S).results
    return entry(result.error)


@provokes
def handle_lapsed(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.send(b"a")
    (handle,) = handles(shop.pop())
    shop.ack(handle)
    (result,) = shop.broker.Ack(pb.AckRequest(group=GROUP, handles=[handle]), timeout=CALL_S).results
    return entry(result.error)


@provokes
def fenced(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    old = shop.attach().generation
    shop.attach()
    return refusal(shop.broker.AckUpTo, pb.AckUpToRequest(group=GROUP, owner="query", generation=old, epoch=1))


@provokes
def epoch_already_acked(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    token = pb.Token(owner="query", generation=shop.attach().generation, epoch=1)
    request = pb.AckUpToRequest(group=GROUP, owner="query", generation=token.generation, epoch=1)
    shop.broker.AckUpTo(request, timeout=CALL_S)
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, token=token))


@provokes
def request_number_reused(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    request = pb.SendRequest(topic=TOPIC, messages=[pb.Message(body=b"x")], producer_id="p", request_number=1)
    shop.broker.Send(request, timeout=CALL_S)
    return send(shop, messages=[pb.Message(body=b"x")] * 2, producer_id="p", request_number=1)


@provokes
def message_not_found(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.create_topic("later", type=pb.DELAY)
    message = pb.Message(body=b"x", delay_ms=60_000)
    (sent,) = shop.broker.Send(pb.SendRequest(topic="later", messages=[message]), timeout=CALL_S).results
    request = pb.RecallRequest(topic="later", recall_handle=sent.recall_handle)
    shop.broker.Recall(request, timeout=CALL_S)
    return refusal(shop.broker.Recall, request)


def end(shop: Stubs, *decisions: pb.Resolution) -> Refusal:
    """Ends a transaction in these ways (none: ends one that was never there); the last refusal."""
    shop.create_topic("deals", type=pb.TRANSACTION)
    message = pb.Message(body=b"x", transaction=True)
    (sent,) = shop.broker.Send(pb.SendRequest(topic="deals", messages=[message]), timeout=CALL_S).results
    transaction = sent.transaction_id if decisions else transaction_text(TransactionId(1, 99, 7))
    ends = [pb.TransactionEnd(transaction_id=transaction, resolution=how) for how in decisions or (pb.COMMIT,)]
    return entry(shop.broker.EndTransaction(pb.EndTransactionRequest(ends=ends), timeout=CALL_S).results[-1].error)


@provokes
def stage_not_found(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    stage = pb.StageName(stage_id="none", topic=TOPIC)
    return refusal(shop.broker.CommitBatch, pb.CommitBatchRequest(sink="s", stages=[stage]))


@provokes
def storage_full(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    leave_on_disk(patch, 1 << 20)
    return send(shop)


@provokes
def busy(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setattr(admitted, "ADMITTED_BYTES_MAX", 0)
    return send(shop)


@provokes
def in_flight_limit(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setattr(token_pop, "OWNED_MAX", 0)
    token = pb.Token(owner="query", generation=shop.attach().generation, epoch=1)
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, token=token))


@provokes
def rate_limited(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.create_topic("slow", quota=pb.Quota(send_messages_per_s=1))
    shop.send(b"x", topic="slow")
    return send(shop, topic="slow")


@provokes
def polling_full(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    patch.setattr(long_poll, "WAITERS_PER_KEY_MAX", 0)
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, wait_ms=1))


@provokes
def unavailable(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    def fail(self: storage.Transaction) -> None:
        self.abort()
        raise CommitFailed("an fsync failed")

    patch.setattr(storage.Transaction, "commit", fail)
    patch.setattr(JournaledTransaction, "commit", fail)
    return send(shop)


@provokes
def lite_topic_quota(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.create_topic("lites", type=pb.LITE, lite=pb.LiteTopics(topics_max=1))
    messages = [pb.Message(body=b"a", lite_topic=name) for name in ("ann", "bob")]
    (_, second) = shop.broker.Send(pb.SendRequest(topic="lites", messages=messages)).results
    return entry(second.error)


@provokes
def filter_conflict(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    shop.pop()
    return refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP, filter=pb.Filter(tag="a")))


@provokes
def internal(shop: Stubs, patch: pytest.MonkeyPatch) -> Refusal:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    patch.setitem(core.HANDLERS, queries.Topics, fail)
    return refusal(shop.admin.ListTopics, pb.ListTopicsRequest())


def test_every_code_of_the_contract_has_its_status() -> None:
    assert len(documented()) == 32
    expected = {name: grpc.StatusCode[status] for name, status in documented().items()}
    assert expected == STATUS_OF_CODE
    assert {*expected, "CODE_UNSPECIFIED"} == set(pb.Code.keys())


def test_every_code_is_provoked_here_or_reserved_for_a_reason() -> None:
    assert PROVOKED.keys() | RESERVED.keys() == STATUS_OF_CODE.keys()
    assert not PROVOKED.keys() & RESERVED.keys()


@pytest.mark.embedded(
    "a code that its tests can bring about",
    only=(
        "INTERNAL",
        "TRANSACTION_NOT_FOUND",
        "HANDLE_LAPSED",
        "REQUEST_NUMBER_REUSED",
        "MESSAGE_NOT_FOUND",
        "STORAGE_FULL",
        "BUSY",
        "POLLING_FULL",
        "UNAVAILABLE",
        "FILTER_CONFLICT",
    ),
)
@pytest.mark.parametrize("code", PROVOKED)
def test_a_code_comes_with_its_status_and_says_whether_and_when_to_retry(
    shop: Stubs, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    with monkeypatch.context() as patch:
        refused = PROVOKED[code](shop, patch)
    assert refused.code == code
    assert refused.status.name == documented()[code]
    assert refused.info.retryable is (code in RETRYABLE)
    if code in RETRYABLE - {"UNAVAILABLE"}:
        assert refused.info.retry_after_ms > 0


def test_the_codes_of_room_and_rest_are_the_retryable_ones() -> None:
    retryable = {name for name, status in documented().items() if status in ("RESOURCE_EXHAUSTED", "UNAVAILABLE")}
    assert retryable == RETRYABLE


@pytest.mark.embedded("a store that fails or is full")
def test_acks_still_work_when_there_is_no_room_for_new_messages(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.send(b"a", b"b", b"c")
    first, second, third = handles(shop.pop())
    with monkeypatch.context() as patch:
        leave_on_disk(patch, 1 << 20)
        assert send(shop).code == "STORAGE_FULL"
        assert refusal(shop.broker.Pop, pb.PopRequest(topic=TOPIC, group=GROUP)).code == "STORAGE_FULL"
        assert shop.ack(first) == [""]
        assert codes([shop.change(second, extend=pb.Extend(invisible_ms=60_000))]) == [""]
        assert codes([shop.change(third, release=pb.Release(delay_ms=0))]) == [""]
    assert len(shop.pop().deliveries) == 1, "and there is room again"
    shop.send(b"d")


@pytest.mark.embedded("a store that fails or is full")
def test_pops_go_on_while_only_sends_lack_room(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.send(b"a")
    shop.pop(max_messages=1)
    shop.send(b"b", b"c")
    leave_on_disk(monkeypatch, 100 << 20)
    refused = send(shop)
    assert refused.code == "STORAGE_FULL"
    assert refused.info.retry_after_ms > 0
    assert f"group {GROUP!r} has 3 messages" in refused.info.message, "it names who holds the room"
    assert len(shop.pop().deliveries) == 2


@pytest.mark.embedded("a store that fails or is full")
def test_every_call_after_a_failed_commit_is_refused_at_once(shop: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is about to end, and must answer every call until then."""
    with monkeypatch.context() as patch:
        unavailable(shop, patch)
    assert send(shop).code == "UNAVAILABLE"
    assert refusal(shop.admin.ListTopics, pb.ListTopicsRequest()).code == "UNAVAILABLE"


@pytest.mark.parametrize("name", ["é" * 40, "a\nb", "\0", "%20", "///", "\u202e", "🦀" * 30], ids=ascii)
def test_messages_with_odd_characters_arrive_whole(shop: Stubs, name: str) -> None:
    """gRPC carries the message twice: percent-encoded in the status and as protobuf in the details."""
    request = pb.ReleaseOwnerRequest(group=GROUP, owner=name[:16])
    assert repr(name[:16]) in refusal(shop.broker.ReleaseOwner, request).info.message
    assert repr(name[:40]) in refusal(shop.broker.Pop, pb.PopRequest(topic=name, group=GROUP)).info.message
