"""Dead letters by reason, and discarded, over the wire."""

from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.loop import aside
from popmq_server.embedded.rules.inspect import dead_reasons
from popmq_server.embedded.rules.operate import redrive
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, bodies, check_error, refusal, reject

DEAD = f"%DLQ%{GROUP}"


def discard(shop: Stubs, **fields: Any) -> pb.DiscardDeadLettersResponse:
    request = pb.DiscardDeadLettersRequest(**{"group": GROUP, **fields})
    answer: pb.DiscardDeadLettersResponse = shop.admin.DiscardDeadLetters(request, timeout=CALL_S)
    for failure in answer.failures:
        check_error(failure.error)
    return answer


def reasons(shop: Stubs, **fields: Any) -> pb.ListDeadLetterReasonsResponse:
    request = pb.ListDeadLetterReasonsRequest(**{"group": GROUP, **fields})
    answer: pb.ListDeadLetterReasonsResponse = shop.admin.ListDeadLetterReasons(request, timeout=CALL_S)
    return answer


def left(shop: Stubs) -> list[bytes]:
    page = shop.admin.Browse(pb.BrowseRequest(topic=DEAD, max_messages=1000), timeout=CALL_S)
    return [each.message.body for each in page.deliveries]


def test_reasons_are_counted_by_their_first_line_the_most_frequent_first(shop: Stubs, clock: FakeClock) -> None:
    first = clock.now_ms()
    reject(shop, "ValueError: 7\n  File a.py", b"a")
    clock.advance(5000)
    reject(shop, "timeout", b"b")
    reject(shop, "ValueError: 7\n  File b.py", b"c")
    assert reasons(shop).reasons == [
        pb.DeadLetterReason(
            reason="ValueError: 7",
            messages=2,
            first_ms=first,
            last_ms=clock.now_ms(),
            last_offset=2,
            exception="ValueError",
        ),
        pb.DeadLetterReason(
            reason="timeout", messages=1, first_ms=clock.now_ms(), last_ms=clock.now_ms(), last_offset=1
        ),
    ]
    assert reasons(shop).looked_at == 3


def test_a_traceback_is_counted_by_its_last_line(shop: Stubs) -> None:
    for line in (1, 2):
        frame = f'  File "orders.py", line {line}, in book'
        reject(shop, f"Traceback (most recent call last):\n{frame}\nKeyError: 'price'\n", b"x")
    assert [(row.reason, row.messages) for row in reasons(shop).reasons] == [("KeyError: 'price'", 2)]


@pytest.mark.parametrize(
    ("reason", "exception"),
    [
        ("ValueError: 7", "ValueError"),
        ("ZeroDivisionError: ", "ZeroDivisionError"),
        ("popmq.errors.Unavailable: gone", "popmq.errors.Unavailable"),
        ("bill.<locals>.NoAccount: 7", "bill.<locals>.NoAccount"),
        ("java.lang.IllegalStateException: no", "java.lang.IllegalStateException"),
        ("timed out: 30 s", ""),
        ("lease expired", ""),
        ("10:30", ""),
        ("Closed", ""),
    ],
)
def test_a_reason_that_begins_with_an_exception_names_it(shop: Stubs, reason: str, exception: str) -> None:
    reject(shop, reason, b"a")
    assert [row.exception for row in reasons(shop).reasons] == [exception]


def test_dead_letters_of_one_exception_are_redriven_or_discarded_whatever_else_their_reasons_say(shop: Stubs) -> None:
    for number in range(3):
        reject(shop, f"KeyError: {number}", b"k%d" % number)
        reject(shop, f"KeyErrors: {number}", b"s%d" % number)
    asked = pb.RedriveDeadLettersRequest(group=GROUP, exception="KeyError", reason="KeyError: 1")
    assert shop.admin.RedriveDeadLetters(asked, timeout=CALL_S).redriven == 1
    assert bodies(shop.pop()) == [b"k1"]
    assert discard(shop, exception="KeyError").discarded == 2
    assert left(shop) == [b"s0", b"s1", b"s2"]
    named = discard(shop, exception="KeyError", offsets=[1])
    assert (named.discarded, [failure.error.code for failure in named.failures]) == (0, [pb.MESSAGE_NOT_FOUND])


def test_reasons_of_one_origin_leave_out_others_and_what_was_redriven(shop: Stubs) -> None:
    shop.create_topic("other")
    reject(shop, "mine", b"a", b"b")
    reject(shop, "theirs", b"c", topic="other")
    shop.admin.RedriveDeadLetters(pb.RedriveDeadLettersRequest(group=GROUP, offsets=[0]), timeout=CALL_S)
    found = reasons(shop, topic=TOPIC)
    assert [(row.reason, row.messages) for row in found.reasons] == [("mine", 1)]
    assert found.looked_at == 2


def test_reasons_of_many_dead_letters_come_in_pages_whose_numbers_add_up(
    shop: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_reasons, "PIECE_LETTERS", 2)
    monkeypatch.setattr(aside, "PIECES_MAX", 1)
    reject(shop, "same", *(b"%d" % number for number in range(5)))
    token, counts = "", list[int]()
    while True:
        page = reasons(shop, page_token=token)
        counts += [row.messages for row in page.reasons]
        if not (token := page.next_page_token):
            break
    assert counts == [2, 2, 1]


def test_dead_letters_are_discarded_one_some_by_reason_or_all(shop: Stubs) -> None:
    reject(shop, "bad", b"a", b"b")
    reject(shop, "worse", b"c", b"d")
    reject(shop, "", b"e", b"f")
    assert discard(shop, offsets=[0]).discarded == 1
    assert left(shop) == [b"b", b"c", b"d", b"e", b"f"]
    assert discard(shop, reason="worse").discarded == 2
    assert left(shop) == [b"b", b"e", b"f"]
    assert discard(shop, reason="").discarded == 2
    assert left(shop) == [b"b"]
    assert shop.stats().dead == 1
    assert discard(shop).discarded == 1
    assert (left(shop), shop.stats().dead, bodies(shop.pop())) == ([], 0, [])
    assert discard(shop) == pb.DiscardDeadLettersResponse()


def test_a_discard_of_named_dead_letters_tells_which_were_not_there(shop: Stubs) -> None:
    reject(shop, "bad", b"a", b"b")
    reject(shop, "worse", b"c")
    answer = discard(shop, offsets=[0, 9], message_ids=["c", "nobody"], reason="bad")
    assert answer.discarded == 1
    assert [(each.offset, each.message_id, pb.Code.Name(each.error.code)) for each in answer.failures] == [
        (-1, "nobody", "MESSAGE_NOT_FOUND"),
        (9, "", "MESSAGE_NOT_FOUND"),
        (2, "c", "MESSAGE_NOT_FOUND"),
    ]


def test_more_dead_letters_than_a_piece_holds_are_discarded_by_one_call(
    shop: Stubs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PIECE_LETTERS", 3)
    reject(shop, "bad", *(b"%d" % number for number in range(20)))
    assert discard(shop, offsets=range(10)).discarded == 10
    assert discard(shop).discarded == 10


@pytest.mark.capability("discard")
def test_a_redrive_by_reason_takes_only_those_with_it(shop: Stubs) -> None:
    reject(shop, "timeout\ntrace", b"a")
    reject(shop, "bad", b"b")
    request = pb.RedriveDeadLettersRequest(group=GROUP, reason="timeout")
    assert shop.admin.RedriveDeadLetters(request, timeout=CALL_S).redriven == 1
    assert left(shop) == [b"b"]


def test_a_dead_letter_whose_topic_is_gone_can_be_discarded(shop: Stubs) -> None:
    shop.create_topic("gone")
    reject(shop, "bad", b"a", topic="gone")
    shop.admin.DeleteTopic(pb.DeleteTopicRequest(name="gone"), timeout=CALL_S)
    assert discard(shop).discarded == 1
    assert left(shop) == []


def test_why_tells_that_a_dead_letter_was_discarded(shop: Stubs) -> None:
    reject(shop, "bad", b"a")
    discard(shop)
    (life,) = shop.admin.Why(pb.WhyRequest(message_id="a", topic=TOPIC), timeout=CALL_S).lives
    (group,) = life.groups
    assert [event.what for event in group.events] == ["sent", "popped", "rejected", "dead", "discarded"]
    assert group.state == "dead"
    assert "was discarded at" in group.explanation


def test_a_group_that_is_not_there_has_no_reasons(shop: Stubs) -> None:
    refused = refusal(shop.admin.ListDeadLetterReasons, pb.ListDeadLetterReasonsRequest(group="nobody"))
    assert refused.code == "GROUP_NOT_FOUND"
