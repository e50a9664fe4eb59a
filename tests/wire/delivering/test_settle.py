"""Settle on the wire: deliveries and messages in one request, its answer, and whose access key may send it."""

from pathlib import Path
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire.access.signing import SignedStubs, write_keys
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, handles, refusal

OUT, LATER = "invoices", "later"


def send(topic: str, *texts: bytes, **fields: Any) -> pb.SettleSend:
    return pb.SettleSend(
        topic=topic, messages=[pb.Message(message_id=text.decode(), body=text, **fields) for text in texts]
    )


def settle(shop: Stubs, *acked: str, sends: list[pb.SettleSend], **fields: Any) -> pb.SettleResponse:
    request = pb.SettleRequest(group=GROUP, handles=acked, sends=sends, **fields)
    answer: pb.SettleResponse = shop.broker.Settle(request, timeout=CALL_S)
    return answer


def leased(shop: Stubs, *texts: bytes) -> list[str]:
    shop.send(*texts)
    return handles(shop.pop(max_messages=len(texts)))


def test_a_settle_answers_where_its_messages_are(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    shop.create_topic(LATER, type=pb.DELAY)
    answer = settle(shop, *leased(shop, b"a", b"b"), sends=[send(OUT, b"x", b"y"), send(LATER, b"z", delay_ms=60_000)])
    assert [(row.message_id, row.queue, row.offset) for row in answer.sends[0].results] == [("x", 0, 0), ("y", 0, 1)]
    assert answer.sends[1].results[0].recall_handle
    assert shop.counted()["acked"] == 2
    assert bodies(shop.pop(topic=OUT)) == [b"x", b"y"]


def test_a_repeat_with_its_request_number_gets_the_first_answer(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    (handle,) = leased(shop, b"a")
    numbered = {"producer_id": "p", "request_number": 1}
    first = settle(shop, handle, sends=[send(OUT, b"x")], **numbered)
    again = settle(shop, handle, sends=[send(OUT, b"x")], **numbered)
    assert again.duplicate
    assert again.sends[0].results == first.sends[0].results
    assert shop.counted()["acked"] == 1
    assert bodies(shop.pop(topic=OUT)) == [b"x"]


def test_a_message_without_an_id_gets_the_same_one_in_a_repeat_and_another_one_in_each_topic(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    (handle,) = leased(shop, b"a")
    sends = [pb.SettleSend(topic=topic, messages=[pb.Message(body=b"x")]) for topic in (OUT, TOPIC)]
    first, again = (settle(shop, handle, sends=sends, producer_id="p", request_number=1) for _ in range(2))
    ids = [[each.results[0].message_id for each in answer.sends] for answer in (first, again)]
    assert ids[0] == ids[1]
    assert len({*ids[0]}) == 2


def test_a_lapsed_handle_refuses_all_and_is_named(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    a, b = leased(shop, b"a", b"b")
    shop.ack(b)
    request = pb.SettleRequest(group=GROUP, handles=[a, b], sends=[send(OUT, b"x")])
    refused = refusal(shop.broker.Settle, request)
    assert (refused.code, refused.info.field) == ("HANDLE_LAPSED", "handles[1]")
    assert bodies(shop.pop(topic=OUT)) == []
    assert shop.ack(a) == [""]


def test_what_is_settled_counts_as_acked_and_sent(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    settle(shop, *leased(shop, b"a"), sends=[send(OUT, b"x")])
    answer = shop.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
    assert {row.topic: row.sent_per_s > 0 for row in answer.topics}[OUT]
    assert shop.stats().acked_per_s > 0


def test_a_parked_pop_is_woken_by_what_is_settled(shop: Stubs) -> None:
    shop.create_topic(OUT, queues=1)
    shop.pop(topic=OUT)
    call = shop.pop_later(topic=OUT)
    settle(shop, *leased(shop, b"a"), sends=[send(OUT, b"x")])
    assert bodies(call.result()) == [b"x"]


def test_a_key_needs_to_receive_from_the_group_and_to_send_to_each_topic(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    write_keys(keys, {"root": ["*"], "biller": ["receive:orders/billing", "send:invoices"]})
    with (
        EmbeddedBroker(tmp_path / "data", sync="none", access_keys=keys) as broker,
        SignedStubs(broker.endpoint, "root") as root,
        SignedStubs(broker.endpoint, "biller") as biller,
    ):
        for topic in (TOPIC, OUT, LATER):
            root.create_topic(topic)
        root.create_group(GROUP)
        (handle,) = leased(root, b"a")
        sends = [send(OUT, b"x"), send(LATER, b"y")]
        refused = refusal(biller.broker.Settle, pb.SettleRequest(group=GROUP, handles=[handle], sends=sends))
        assert refused.code == "PERMISSION_DENIED"
        assert "send:later" in refused.info.action
        settle(biller, handle, sends=sends[:1])
