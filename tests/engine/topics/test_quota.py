"""Quotas: what a topic takes and gives in a second, to the token and to the millisecond (F.08, D.47)."""

import random
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import Place
from popmq_server.embedded.writer import core
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from tests.engine.rig import HOUR, KEEP, MINUTE, SECOND, Rig, bodies, message, numbered, sending


def topic(rig: Rig, queues: int = 1, **quota: Any) -> None:
    rig.do(ask.CreateTopic("t", queues, False, KEEP, **quota))
    rig.group()
    rig.pop()


def update(rig: Rig, **changes: int) -> None:
    rig.do(ask.UpdateTopic("t", 0, None, tuple(changes.items())))


def refused(rig: Rig, command: Any) -> Refused:
    """A command that must be refused, and writes nothing."""
    committed = rig.commit(command)
    (result,) = committed.results
    assert isinstance(result, Refused), result
    assert not committed.wrote
    return result


def limited(rig: Rig, *texts: str) -> int:
    """A Send that is limited: after how many ms it may be tried again."""
    result = refused(rig, sending(*texts))
    assert (result.code, result.field, result.retryable) == ("RATE_LIMITED", "topic", True)
    return result.retry_after_ms


def starved(rig: Rig, **asked: Any) -> int:
    """A Pop that finds messages, but no token: after how many ms it may be tried again."""
    popped = rig.popped(**asked)
    assert popped.rows == []
    assert popped.refusal is not None
    assert (popped.refusal.code, popped.quota_ms) == ("RATE_LIMITED", rig.now + popped.refusal.retry_after_ms)
    return popped.refusal.retry_after_ms


# ── Sends ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_second_of_messages_passes_at_once_and_then_one_for_each_token(rig: Rig) -> None:
    topic(rig, send_messages_per_s=4)
    rig.send(*"abcd")
    assert limited(rig, "e") == 250
    rig.skip(249)
    assert limited(rig, "e") == 1
    rig.skip(1)
    rig.send("e")
    assert limited(rig, "f", "g") == 500
    rig.skip(10 * MINUTE)
    rig.send(*"fghi")
    assert limited(rig, "j") == 250, "a full bucket holds one second"


@pytest.mark.parametrize("rate", [1, 3, 7, 999, 1000, 1001, 123_457])
def test_the_time_to_retry_after_is_true_to_the_millisecond(rig: Rig, rate: int) -> None:
    topic(rig, send_messages_per_s=rate)
    for count in (rate, 1, 2, rate // 2 + 1):
        count = min(count, 2000)
        texts = [str(number) for number in range(count)]
        (result,) = rig.run(sending(*texts))
        while isinstance(result, Refused):
            rig.skip(result.retry_after_ms - 1)
            assert limited(rig, *texts) == 1
            rig.skip(1)
            (result,) = rig.run(sending(*texts))


@pytest.mark.slow
def test_the_rate_is_kept_whatever_the_sizes_of_the_requests(rig: Rig) -> None:
    topic(rig, send_messages_per_s=50)
    chance, stored, began = random.Random(3), 0, rig.now
    for number in range(400):
        texts = tuple(numbered(f"{number}.", chance.choice((1, 2, 5, 30, 200))))
        (result,) = rig.run(sending(*texts))
        stored += 0 if isinstance(result, Refused) else len(texts)
        rig.skip(chance.randrange(400))
    passed_s = (rig.now - began) / 1000
    assert 45 * passed_s < stored <= 50 * (passed_s + 1) + 200


def test_a_request_larger_than_a_second_passes_when_the_bucket_is_full_and_leaves_a_debt(rig: Rig) -> None:
    topic(rig, send_messages_per_s=2)
    rig.send("a")
    assert limited(rig, *"bcdefgh") == 500
    rig.skip(500)
    rig.send(*"bcdefgh")
    assert limited(rig, "i") == 3000
    rig.skip(3000)
    rig.send("i")


def test_bytes_are_counted_as_they_are_stored(rig: Rig) -> None:
    size = len(message("x" * 100).data)
    topic(rig, send_bytes_per_s=2 * size)
    rig.send("x" * 100, "y" * 100)
    assert limited(rig, "z" * 100) == 500
    rig.skip(500)
    rig.send("z" * 100)


@pytest.mark.slow
def test_the_rate_with_the_longer_wait_is_reported(rig: Rig) -> None:
    size = len(message("a").data)
    topic(rig, send_messages_per_s=1, send_bytes_per_s=size * 10)
    rig.send("a")
    assert limited(rig, "b") == 1000
    update(rig, send_messages_per_s=10, send_bytes_per_s=size)
    rig.send("a")
    result = refused(rig, sending("b"))
    assert (result.retry_after_ms, result.message) == (1000, f"topic 't' takes {size} bytes a second")


def test_a_refused_send_uses_no_quota_and_other_sends_of_its_commit_go_on(rig: Rig) -> None:
    topic(rig, send_messages_per_s=3)
    rig.topic("free")
    asked = [sending(*"ab"), sending(*"cd"), sending("e"), sending("f", topic="free"), sending("g")]
    got = [result.code if isinstance(result, Refused) else "" for result in rig.run(*asked)]
    assert got == ["", "RATE_LIMITED", "", "", "RATE_LIMITED"]
    assert rig.browse("t").max_offset == 3


def test_entries_that_are_not_stored_are_not_counted(rig: Rig) -> None:
    topic(rig, send_messages_per_s=2, unique_ids_ms=HOUR)
    wrong = message("x")._replace(extra=Extra(priority=1))
    places = rig.do(ask.Send("t", (message("a"), wrong))).places
    assert [isinstance(place, Refused) for place in places] == [False, True]
    assert rig.do(ask.Send("t", (message("a"),))).places == (Place(0, 0, duplicate=True),)
    rig.send("b")
    assert limited(rig, "c") == 500


def test_a_repeated_request_is_answered_and_not_counted(rig: Rig) -> None:
    topic(rig, send_messages_per_s=1)
    first = rig.send("a", producer="p", number=1)
    again = rig.send("a", producer="p", number=1)
    assert (again.first, again.duplicate) == (first.first, True)
    assert limited(rig, "b") == 1000


def test_tokens_of_an_aborted_commit_are_there_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    topic(rig, send_messages_per_s=1)
    sent = core.HANDLERS[ask.Send]

    def broken(tx: Any, command: Any) -> Any:
        sent(tx, command)
        raise ZeroDivisionError

    monkeypatch.setitem(core.HANDLERS, ask.Send, broken)
    assert isinstance(rig.run(sending("a"))[0], Refused)
    monkeypatch.undo()
    rig.send("a")


def test_dead_letters_are_not_limited_by_the_send_quota(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.UpdateTopic("%DLQ%g", 0, None, (("send_messages_per_s", 1),)))
    rig.send(*"abc")
    rig.reject(rig.pop())
    assert rig.numbers().dead == 3


# ── Sizes ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_body_that_is_too_large_is_refused_alone(rig: Rig) -> None:
    topic(rig, message_bytes_max=100)
    rows = rig.do(ask.Send("t", (message("x" * 100, "a"), message("x" * 101, "b"), message("y", "c")))).places
    assert (rows[0], rows[2]) == (Place(0, 0), Place(0, 1))
    assert (rows[1].code, rows[1].field) == ("INVALID_FIELD", "body")
    assert rows[1].message == "the body has 101 bytes, topic 't' takes at most 100"
    assert len(rig.pop()) == 2


def test_the_limit_of_message_bytes_counts_only_the_body(rig: Rig) -> None:
    topic(rig, message_bytes_max=10)
    rig.do(ask.Send("t", (message("x" * 10, "i" * 100, keys=("k" * 100,)),)))
    assert len(rig.pop()) == 1


@pytest.mark.slow
def test_small_messages_still_go_the_short_way(rig: Rig) -> None:
    topic(rig, message_bytes_max=1000)
    assert rig.send(*"abc").places is None


# ── Pops ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_group_gets_a_second_of_messages_and_then_as_many_as_there_are_tokens(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=4)
    rig.send(*"abcdefghij")
    assert bodies(rig.pop()) == list("abcd")
    assert starved(rig) == 250
    rig.skip(249)
    assert starved(rig) == 1
    rig.skip(1)
    assert bodies(rig.pop()) == ["e"]
    rig.skip(500)
    assert bodies(rig.pop()) == ["f", "g"]


def test_an_empty_topic_is_empty_and_not_limited(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=1)
    rig.send("a")
    rig.ack(rig.pop())
    assert (rig.popped().refusal, rig.popped().rows) == (None, [])


def test_queues_that_are_empty_are_not_limited(rig: Rig) -> None:
    topic(rig, queues=2, pop_messages_per_s=1)
    rig.send("a")
    rig.send("b")
    (row,) = rig.pop()
    assert starved(rig, queues=(1 - row.queue,)) == 1000
    assert rig.popped(queues=(row.queue,)).refusal is None


def test_each_group_has_its_own_tokens(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=1)
    rig.group("other")
    rig.send("a", "b")
    assert len(rig.pop()) == len(rig.pop(group="other")) == 1
    assert starved(rig) == starved(rig, group="other") == 1000


def test_redeliveries_count_and_replays_do_not(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=2)
    rig.send("a", "b")
    rows = rig.pop(1, client_id="c", attempt_id="1")
    assert rig.popped(client_id="c", attempt_id="1").replay
    rig.release(rows, delay_ms=0)
    assert [row.attempt for row in rig.pop(1)] == [1]
    assert starved(rig) == 500
    rig.skip(500)
    assert [row.attempt for row in rig.pop()] == [2]


def test_a_token_is_sealed_with_what_the_quota_gives_and_is_not_at_its_end(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=2)
    rig.send(*"abc")
    rig.attach(topic="t", lease_ms=HOUR)
    sealed = rig.seal(1, max_messages=10, share=10)
    assert sealed.sealed == (2, False, 0, 0)
    limit = refused(rig, ask.Pop("t", "g", token=ask.PopToken("o", 1, 1, 0, 1, 10, None)))
    assert (limit.code, limit.retry_after_ms) == ("RATE_LIMITED", 500)
    assert len(rig.seal(1).rows) == 2, "a replay costs nothing"
    rig.skip(500)
    assert rig.seal(1, chunk=1, max_messages=10, share=10).sealed == (1, True, 0, 0)
    assert rig.seal(1, chunk=2).sealed == (0, True, 0, 0), "nothing is left: an empty set needs no token"


def test_a_token_whose_share_is_full_ends_without_quota(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=2)
    rig.send(*"abc")
    rig.attach(topic="t", lease_ms=HOUR)
    assert rig.seal(1, share=2).sealed == (2, True, 0, 0)
    assert rig.seal(1, chunk=1, share=2).sealed == (0, True, 0, 0)


# ── Changes ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_quota_that_is_changed_applies_at_once(rig: Rig) -> None:
    topic(rig, send_messages_per_s=1)
    rig.send("a")
    update(rig, send_messages_per_s=3)
    rig.send(*"bcd")
    assert limited(rig, "e") == 334
    update(rig, send_messages_per_s=0)
    rig.send(*numbered("m", 100))
    update(rig, message_bytes_max=1)
    assert rig.do(sending("xx")).places[0].code == "INVALID_FIELD"


def test_an_update_that_leaves_the_quota_alone_gives_no_tokens(rig: Rig) -> None:
    topic(rig, send_messages_per_s=1)
    rig.send("a")
    update(rig, send_messages_per_s=1)
    rig.do(ask.UpdateTopic("t", 3, (True, HOUR)))
    assert limited(rig, "b") == 1000


def test_buckets_are_full_after_a_restart_and_go_with_their_topic_and_group(rig: Rig) -> None:
    topic(rig, send_messages_per_s=1, pop_messages_per_s=1)
    rig.send("a")
    rig.pop()
    rig.crash()
    rig.send("b")
    assert limited(rig, "c") == 1000
    rig.pop()
    assert len(list(rig.core.state.buckets)) == 2
    rig.do(ask.DeleteGroup("g"))
    rig.settle()
    assert len(list(rig.core.state.buckets)) == 1
    rig.do(ask.DeleteTopic("t"))
    rig.settle()
    assert list(rig.core.state.buckets) == []


# ── Pulls ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pull_of_a_group_takes_tokens_and_one_without_a_group_does_not(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=2)
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.send(*"abc")
    assert len(rig.do(ask.Pull("t", "g", 0, 0)).rows) == 2
    limit = refused(rig, ask.Pull("t", "g", 0, 2))
    assert (limit.code, limit.retry_after_ms) == ("RATE_LIMITED", 500)
    assert rig.do(ask.Pull("t", "g", 0, 3)).status == "OFFSET_OVERFLOW_ONE", "nothing is there: nothing is refused"
    assert len(rig.do(ask.Pull("t", "", 0, 0)).rows) == 3
    rig.skip(500)
    assert len(rig.do(ask.Pull("t", "g", 0, 2)).rows) == 1


def test_a_refused_pull_commits_nothing(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=1)
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.settle()
    rig.send(*"abc")
    assert len(rig.do(ask.Pull("t", "g", 0, 0)).rows) == 1
    refused(rig, ask.Pull("t", "g", 0, 1, commit_offset=1))
    assert rig.numbers().acked == 0
    rig.skip(SECOND)
    rig.do(ask.Pull("t", "g", 0, 1, commit_offset=1))
    assert rig.numbers().acked == 1


def test_pulled_retries_take_tokens_too(rig: Rig) -> None:
    topic(rig, pop_messages_per_s=3)
    rig.send("a", "b")
    rig.release(rig.pop(), delay_ms=0)
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.settle()
    pulled = rig.do(ask.Pull("%RETRY%g+t", "g", 0, 0))
    assert len(pulled.rows) == 1
    assert refused(rig, ask.Pull("%RETRY%g+t", "g", 0, pulled.next_offset)).code == "RATE_LIMITED"
    rig.skip(SECOND)
    pulled = rig.do(ask.Pull("%RETRY%g+t", "g", 0, pulled.next_offset))
    assert len(pulled.rows) == 1
    rig.skip(10)
    assert rig.do(ask.Pull("%RETRY%g+t", "g", 0, pulled.next_offset)).rows == []


def test_a_message_without_a_body_passes_the_limit_of_bodies(rig: Rig) -> None:
    """Its properties alone may be longer than the limit."""
    topic(rig, message_bytes_max=10)
    data = pb.Message(message_id="m", properties={"name": "v" * 100}).SerializeToString()
    (sent,) = rig.run(ask.Send("t", (message("m")._replace(data=data),), bytes=len(data)))
    assert sent.first == 0
