"""Owners and sealed tokens: the same set until it is acked, whatever happened meanwhile."""

import itertools

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.delivery import token_pop
from popmq_server.embedded.rules.delivery.revive import REVIVE_MEMBERS_MAX
from popmq_server.embedded.state.owners import OWNER_KEEP_MS
from popmq_server.values.leased import Leased
from tests.engine.rig import DAY, HOUR, MINUTE, SECOND, Rig, bodies, deliveries, numbered, refusal, refusals, sealing
from tests.known import known


@pytest.fixture
def shop(rig: Rig) -> Rig:
    """Topic t with ten messages, group g, owner o attached for a minute."""
    rig.topic()
    rig.group()
    rig.send(*numbered("m", 10))
    rig.attach(topic="t")
    return rig


def texts(popped: Leased) -> list[str]:
    return bodies(deliveries(popped))


# ── Sealing ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_token_holds_the_same_set_with_the_same_handles_and_attempts(shop: Rig) -> None:
    first = shop.seal(1, max_messages=4)
    again = shop.seal(1, max_messages=100, max_bytes=1)
    assert (again.rows, again.ck_id, again.nonce, again.replay) == (first.rows, first.ck_id, first.nonce, True)
    assert {row.attempt for row in deliveries(again)} == {1}
    assert first.sealed == again.sealed == (4, False, 0, 0)


def test_chunks_and_parts_share_nothing_and_the_last_one_says_end(shop: Rig) -> None:
    sets = [shop.seal(1, part, chunk, max_messages=3) for part, chunk in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2))]
    assert [len(one.rows) for one in sets] == [3, 3, 3, 1, 0]
    assert [one.sealed and one.sealed[1] for one in sets] == [False, False, False, True, True]
    assert sorted(text for one in sets for text in texts(one)) == sorted(numbered("m", 10))


def test_an_empty_set_is_sealed_too(rig: Rig) -> None:
    rig.pair()
    rig.attach()
    assert rig.seal(1).sealed == (0, True, 0, 0)
    rig.send("late")
    assert rig.seal(1).rows == []
    assert texts(rig.seal(1, chunk=1)) == ["late"]


def test_a_share_bounds_all_chunks_of_a_part(shop: Rig) -> None:
    first = shop.seal(1, max_messages=3, share=5)
    second = shop.seal(1, chunk=1, max_messages=3, share=5)
    third = shop.seal(1, chunk=2, max_messages=3, share=5)
    assert [len(one.rows) for one in (first, second, third)] == [3, 2, 0]
    assert [one.sealed and one.sealed[1] for one in (first, second, third)] == [False, True, True]
    assert len(shop.seal(1, part=1, max_messages=3, share=5).rows) == 3, "another part has a share of its own"
    assert len(shop.seal(2, max_messages=3, share=5).rows) == 2, "and so has another epoch"


def test_upto_bounds_the_messages_read_and_the_end_reported(shop: Rig) -> None:
    _, upto, _ = shop.do(ask.Available("t", "g"))
    shop.send("later")
    sealed = shop.seal(1, max_messages=100, upto=upto)
    assert (len(sealed.rows), sealed.sealed) == (10, (10, True, 0, 0))
    assert shop.seal(2, upto=upto).sealed == (0, True, 0, 0)
    assert texts(shop.seal(3)) == ["later"]


def test_asking_what_is_available_is_refused_as_a_pop_with_its_filter_is_and_fixes_none(shop: Rig) -> None:
    first, second = ("tag", "a"), ("tag", "b")
    assert [len(shop.run(ask.Available("t", "g", None, kind))) for kind in (first, second)] == [1, 1]
    assert shop.pop(filter=first) == []
    assert refusal(shop.run(ask.Available("t", "g", None, second))[0]) == "FILTER_CONFLICT"
    assert shop.do(ask.Available("t", "g", None, first))[0] == shop.do(ask.Available("t", "g"))[0]


def test_upto_bounds_the_retry_topic_by_its_entries(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b")
    rows = rig.pop()
    rig.release(rows[:1], delay_ms=0)
    _, upto, _ = rig.do(ask.Available("t", "g"))
    rig.release(rows[1:], delay_ms=0)
    rig.attach()
    assert rig.do(ask.Available("t", "g", upto))[0] == 1
    sealed = rig.seal(1, upto=upto)
    assert (texts(sealed), sealed.sealed) == (["a"], (1, True, 0, 0))


def test_a_message_acked_by_handle_is_not_repeated_to_its_owner(shop: Rig) -> None:
    rows = deliveries(shop.seal(1, max_messages=3))
    assert shop.ack(rows[1:2]) == [None]
    assert texts(shop.seal(1)) == ["m0", "m2"]
    assert shop.ack_up_to(1) == 2
    assert shop.numbers().acked == 3


def test_the_lease_of_an_owners_message_is_changed_by_the_owner_only(shop: Rig) -> None:
    rows = deliveries(shop.seal(1, max_messages=1))
    for kind in ("extend", "release", "reject"):
        assert refusals(shop.change(rows, kind, delay_ms=MINUTE)) == ["INVALID_FIELD"]
    assert shop.numbers().in_flight == 1


# ── Its lease ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_messages_of_an_owner_are_delivered_to_others_only_after_its_lease(shop: Rig) -> None:
    shop.seal(1, max_messages=10)
    shop.advance(MINUTE - 1)
    assert shop.pop() == []
    shop.advance(1)
    assert len(shop.pop()) == 10


def test_renewing_an_owner_moves_one_key_for_all_its_messages(shop: Rig) -> None:
    for chunk in range(5):
        shop.seal(1, chunk=chunk, max_messages=2)
    leases, before = shop.read("ck"), shop.read("due")
    assert shop.do(ask.RenewOwner("g", "o", 1, HOUR)) == (5, 10, shop.now + HOUR)
    assert shop.read("ck") == leases
    assert len(set(shop.read("due")) - set(before)) == 1
    shop.advance(HOUR - 1)
    assert shop.pop() == []


def test_a_pop_with_a_token_renews_the_lease_but_never_shortens_it(shop: Rig) -> None:
    assert shop.seal(1, max_messages=1, invisible_ms=SECOND).due_ms == shop.now + MINUTE
    assert shop.seal(1, chunk=1, max_messages=1, invisible_ms=HOUR).due_ms == shop.now + HOUR


def test_a_stolen_message_is_its_thiefs_second_attempt(shop: Rig) -> None:
    shop.seal(1, max_messages=10)
    shop.advance(MINUTE)
    rows = shop.pop(3)
    assert [(row.body, row.attempt) for row in rows] == [("m0", 2), ("m1", 2), ("m2", 2)]
    again = shop.seal(1)
    assert again.sealed == (10, True, 3, 0)
    assert texts(again) == [f"m{number}" for number in range(3, 10)]
    assert shop.ack_up_to(1) == 7
    assert shop.ack(rows) == [None] * 3
    assert shop.numbers().acked == 10


@pytest.mark.slow
def test_a_lapsed_owner_makes_no_dead_letters(rig: Rig) -> None:
    rig.topic()
    rig.group(max_attempts=1)
    rig.send("a")
    rig.attach(topic="t")
    rig.seal(1)
    rig.advance(MINUTE)
    assert (rig.numbers().dead, rig.numbers().retry) == (0, 1)


@pytest.mark.parametrize("how", ["attach", "renew", "another token"])
def test_an_owner_that_comes_back_takes_all_its_messages_back(shop: Rig, how: str) -> None:
    shop.seal(1, max_messages=5)
    shop.advance(2 * MINUTE)
    generation = 1
    if how == "attach":
        generation = shop.attach()
    elif how == "renew":
        shop.do(ask.RenewOwner("g", "o", 1, MINUTE))
    new = shop.seal(1, chunk=1, max_messages=100, generation=generation)
    assert sorted(texts(new)) == [f"m{number}" for number in range(5, 10)]
    shop.settle()
    assert shop.numbers().retry == 0
    assert shop.seal(1, generation=generation).sealed == (5, False, 0, 0)


def test_releasing_an_owner_makes_its_messages_visible_at_once(shop: Rig) -> None:
    shop.seal(1, max_messages=4)
    assert shop.do(ask.ReleaseOwner("g", "o")) == 4
    shop.settle()
    assert shop.numbers().retry == 4
    assert shop.seal(1).sealed == (4, False, 0, 0)


def test_an_exclusive_group_keeps_the_messages_of_a_lapsed_owner_until_it_is_opened(rig: Rig) -> None:
    rig.topic()
    rig.group(exclusive_owner=True)
    rig.attach()
    rig.send("a", "b")
    rig.seal(1)
    rig.advance(2 * HOUR)
    assert rig.pop() == []
    assert rig.numbers().in_flight == 2
    rig.do(ask.UpdateGroup("g", {"exclusive_owner": False}))
    rig.settle()
    assert bodies(rig.pop()) == ["a", "b"]


def test_a_late_owner_of_an_exclusive_group_finds_all_its_messages(rig: Rig) -> None:
    rig.topic()
    rig.group(exclusive_owner=True)
    rig.attach()
    rig.send("a", "b")
    rig.seal(1)
    rig.advance(5 * DAY)
    rig.restart()
    assert texts(rig.seal(1)) == ["a", "b"]
    assert rig.ack_up_to(1) == 2


# ── Ending epochs ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_ack_up_to_finishes_epochs_up_to_one_late_or_not_once(shop: Rig) -> None:
    for epoch in (1, 2, 3):
        shop.seal(epoch, max_messages=2)
    shop.advance(HOUR)
    assert shop.do(ask.AckUpTo("g", "o", 1, 2))[:2] == (4, 2)
    assert shop.do(ask.AckUpTo("g", "o", 1, 2))[:2] == (0, 2)
    assert shop.do(ask.AckUpTo("g", "o", 1, 1))[:2] == (0, 2)
    assert texts(shop.seal(3)) == ["m4", "m5"]
    shop.settle()
    assert shop.ack_up_to(3) == 2


def test_ack_up_to_tells_how_many_messages_of_its_epochs_others_popped_after_the_lease(shop: Rig) -> None:
    shop.seal(1, max_messages=6)
    shop.seal(2, max_messages=4)
    shop.advance(MINUTE)
    assert len(shop.pop(7)) == 7
    assert shop.do(ask.AckUpTo("g", "o", 1, 1)) == (0, 1, {}, 6)
    assert shop.do(ask.AckUpTo("g", "o", 1, 1)) == (0, 1, {}, 0), "a repeat finishes no token"
    assert shop.do(ask.AckUpTo("g", "o", 1, 2)) == (3, 2, {"t": 3}, 1)


def test_a_token_of_a_topic_that_was_created_again_seals_nothing(shop: Rig) -> None:
    _, _, topic_id = shop.do(ask.Available("t", "g"))
    assert len(shop.seal(1, max_messages=4, topic_id=topic_id).rows) == 4
    shop.do(ask.DeleteTopic("t"))
    shop.settle()
    shop.topic()
    shop.send("new")
    assert refusal(shop.run(sealing(1, topic_id=topic_id))[0]) == "TOPIC_NOT_FOUND"
    assert shop.do(ask.Available("t", "g"))[2] != topic_id
    assert texts(shop.seal(1)) == ["new"], "a token without the id of a topic takes any"


def test_a_finished_epoch_is_not_read_again(shop: Rig) -> None:
    shop.seal(1)
    shop.ack_up_to(1)
    assert refusal(shop.run(sealing(1))[0]) == "EPOCH_ALREADY_ACKED"
    assert refusal(shop.run(sealing(1, chunk=7))[0]) == "EPOCH_ALREADY_ACKED"


def test_an_older_generation_is_fenced_for_everything(shop: Rig) -> None:
    shop.seal(1, max_messages=2)
    assert shop.attach() == 2
    old = shop.run(
        sealing(1), ask.RenewOwner("g", "o", 1, MINUTE), ask.AckUpTo("g", "o", 1, 1), ask.ReleaseOwner("g", "o", 1)
    )
    assert refusals(old) == ["FENCED"] * 4
    assert shop.numbers().acked == 0
    assert texts(shop.seal(1, generation=2)) == ["m0", "m1"]


def test_a_generation_that_was_not_given_out_is_refused(shop: Rig) -> None:
    assert refusals(shop.run(sealing(1, generation=2), ask.RenewOwner("g", "o", 9, MINUTE))) == ["INVALID_FIELD"] * 2


def test_an_unknown_owner_is_refused(shop: Rig) -> None:
    asked = [sealing(1, owner="x"), ask.RenewOwner("g", "x", 1, MINUTE), ask.AckUpTo("g", "x", 1, 1)]
    assert refusals(shop.run(*asked, ask.ReleaseOwner("g", "x"))) == ["OWNER_NOT_FOUND"] * 4
    assert refusals(shop.run(ask.AttachOwner("x", "o", MINUTE), ask.AttachOwner("g", "o", MINUTE, "x"))) == [
        "GROUP_NOT_FOUND",
        "TOPIC_NOT_FOUND",
    ]


def test_an_owner_belongs_to_the_topics_that_it_was_attached_for_or_popped_as_long_as_they_exist(shop: Rig) -> None:
    shop.topic("u")
    shop.seal(1, topic="u")
    for only, code in ((("t", "*"), "PERMISSION_DENIED"), (("u", "g"), "PERMISSION_DENIED"), (("*", "g"), None)):
        for _ in range(2):
            found = shop.run(ask.RenewOwner("g", "o", 1, MINUTE, (only,)))[0]
            assert (refusal(found) if code else None) == code
            shop.restart()
    shop.do(ask.DeleteTopic("u"))
    assert shop.do(ask.RenewOwner("g", "o", 1, MINUTE, (("t", "*"),)))


def test_attaching_may_make_the_group(rig: Rig) -> None:
    rig.topic()
    assert rig.do(ask.AttachOwner("new", "o", MINUTE, "t", None, True)) == (1, 0, 1)
    rig.send("a")
    assert texts(rig.seal(1, group="new")) == ["a"]


def test_owners_of_one_group_share_its_messages_and_nothing_else(shop: Rig) -> None:
    shop.attach("p")
    first, second = shop.seal(1, max_messages=5), shop.seal(1, owner="p", max_messages=100)
    assert sorted(texts(first) + texts(second)) == sorted(numbered("m", 10))
    assert shop.ack_up_to(1, "p") == 5
    assert len(shop.seal(1).rows) == 5


# ── Long after ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_owner_unseen_for_seven_days_is_dropped_and_its_messages_are_ordinary_retries(shop: Rig) -> None:
    shop.seal(1, max_messages=10)
    assert OWNER_KEEP_MS == 7 * DAY
    shop.advance(OWNER_KEEP_MS - 1)
    assert shop.numbers().owners == 1
    shop.advance(1)
    assert [shop.read(name) for name in ("own", "tok", "ck", "due")] == [[], [], [], []]
    assert refusal(shop.run(ask.RenewOwner("g", "o", 1, MINUTE))[0]) == "OWNER_NOT_FOUND"
    assert (shop.numbers().retry, len(shop.pop())) == (10, 10)
    assert shop.attach() == 1


@pytest.mark.parametrize("exclusive", [False, True])
def test_the_many_leases_of_an_owner_are_released_and_dropped_in_pieces(rig: Rig, exclusive: bool) -> None:
    rig.topic()
    rig.group(exclusive_owner=exclusive)
    rig.attach(topic="t")
    rig.send(*numbered("m", 5 * REVIVE_MEMBERS_MAX))
    for chunk in range(10):
        rig.seal(1, chunk=chunk, max_messages=REVIVE_MEMBERS_MAX // 2)
    rig.skip(8 * DAY)
    held = [known(rig.numbers().in_flight)]
    tokens = [len(rig.read("tok"))]
    while rig.due:
        rig.run()
        held.append(known(rig.numbers().in_flight))
        tokens.append(len(rig.read("tok")))
    assert max(before - after for before, after in itertools.pairwise(held)) <= 2 * REVIVE_MEMBERS_MAX
    assert (held[-1], tokens[-1], rig.numbers().retry) == (0, 0, 5 * REVIVE_MEMBERS_MAX)


def test_an_owner_holds_no_more_than_its_limit(shop: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_pop, "OWNED_MAX", 4)
    assert len(shop.seal(1, max_messages=3).rows) == 3
    second = shop.seal(1, chunk=1, max_messages=3)
    assert (len(second.rows), second.sealed) == (1, (1, False, 0, 0))
    assert refusal(shop.run(sealing(1, chunk=2))[0]) == "IN_FLIGHT_LIMIT"
    assert len(shop.seal(1).rows) == 3, "what is sealed is read all the same"
    shop.ack_up_to(1)
    assert len(shop.seal(2, max_messages=3).rows) == 3


def test_an_owner_at_its_limit_learns_that_a_share_is_taken(shop: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_pop, "OWNED_MAX", 4)
    for chunk in range(2):
        assert shop.seal(1, chunk=chunk, max_messages=2, share=4).sealed == (2, False, 0, 0)
    assert shop.seal(1, chunk=2, max_messages=2, share=4).sealed == (0, True, 0, 0)
    assert refusal(shop.run(sealing(1, part=1, share=4))[0]) == "IN_FLIGHT_LIMIT"


def test_the_end_follows_from_the_retries_of_this_topic(rig: Rig) -> None:
    rig.topic("t")
    rig.topic("u")
    rig.group()
    rig.attach()
    rig.send("a", "b", topic="u")
    rig.seal(1, topic="u")
    rig.advance(2 * HOUR)  # the owner has lost two messages of another topic
    rig.send("x", "y")
    rig.release(rig.pop(), delay_ms=0)
    first = rig.seal(2, max_messages=1)
    assert (len(first.rows), first.sealed) == (1, (1, False, 0, 0))
    assert rig.seal(2, chunk=1).sealed == (1, True, 0, 0)
