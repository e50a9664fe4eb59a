"""What a group passed out of order, and everything that moves, drops or counts messages meanwhile."""

from collections import Counter
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded.store.keys import TAKEN_KEY
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.values.records import FairKeys
from tests.engine.rig import DAY, HOUR, MINUTE, Rig, message, refusal
from tests.engine.traffic.traffic_fair import TENANTS, drained, limited, of, opened, send, tenants, update

#: Moves of a group, by what is asked.
EARLIEST, LATEST = ("EARLIEST", 0), ("LATEST", 0)


def half_read(rig: Rig, fair: FairKeys | None = TENANTS, **settings: Any) -> list[str]:
    """A group that has passed bolt's messages beyond many of acme; returns the bodies of what is leased."""
    opened(rig, fair, queues=2, **settings)
    send(rig, of("acme", 300), of("bolt", 10))
    rows = rig.pop(30)
    assert rig.read("taken")
    return [row.body for row in rows]


def reset(rig: Rig, to: tuple[str, int]) -> None:
    rig.do(ask.ResetOffsets("t", "g", to=to))
    rig.settle()


def test_a_reset_to_the_beginning_delivers_everything_again(rig: Rig) -> None:
    half_read(rig)
    reset(rig, EARLIEST)
    assert rig.findings() == []
    assert rig.read("taken") == []
    assert len(set(drained(rig, 64))) == 310
    assert rig.findings() == []


def test_a_reset_to_the_end_skips_everything(rig: Rig) -> None:
    half_read(rig)
    reset(rig, LATEST)
    assert rig.findings() == []
    assert rig.pop() == []
    send(rig, of("cove", 1))
    assert tenants(rig.pop()) == ["cove"]


def test_a_group_that_is_put_at_the_position_of_another_passes_the_same(rig: Rig) -> None:
    got = half_read(rig)
    rig.group("copy", fair_keys=TENANTS)
    rig.do(ask.CloneOffsets("t", "g", "copy"))
    assert rig.findings() == []
    found = list[str]()
    while rows := rig.pop(64, group="copy"):
        rig.ack(rows, group="copy")
        found += [row.body for row in rows]
    assert not {*found} & {*got}
    assert len(found) == 310 - len(got)
    assert rig.findings() == []


def test_a_group_without_fair_keys_is_put_at_the_first_message_that_was_not_passed(rig: Rig) -> None:
    got = half_read(rig)
    rig.group("copy")
    rig.do(ask.CloneOffsets("t", "g", "copy"))
    found = [row.body for row in rig.pop(400, group="copy")]
    assert {f"acme-{n}" for n in range(300)} - {*got} <= {*found}
    assert rig.findings() == []


def test_messages_that_are_dropped_unread_count_once(rig: Rig) -> None:
    rig.topic("t", 2, by_age=True, keep_ms=HOUR)
    rig.group("g", fair_keys=TENANTS)
    rig.pop()
    send(rig, of("acme", 50), of("bolt", 5))
    rows = rig.pop(8)
    rig.ack(rows)
    rig.advance(3 * HOUR)
    assert rig.pop() == []
    numbers = rig.numbers()
    assert (numbers.dropped, numbers.acked, numbers.ready) == (55 - 8, 8, 0)
    assert rig.findings() == []


def test_retention_keeps_what_was_not_passed(rig: Rig) -> None:
    opened(rig, limited(1, 0, ("bolt", 0, 0)), queues=1)
    send(rig, of("acme", 5))
    rig.pop(1, invisible_ms=10 * DAY // 20)
    send(rig, of("bolt", 5))
    rig.ack(rig.pop(9))
    rig.advance(5 * DAY)
    assert Counter(tenants(rig.pop(9))) == {"acme": 1}
    assert rig.findings() == []


def test_messages_that_do_not_match_the_filter_are_passed(rig: Rig) -> None:
    rig.topic("t", 3)
    rig.group("g", fair_keys=TENANTS)
    rig.pop(filter=("tag", "even"))
    some = [message(f"acme-{n}", tag="even" if n % 2 == 0 else "odd", properties={"tenant": "acme"}) for n in range(40)]
    send(rig, some)
    rows = rig.pop(64)
    assert {int(row.body.split("-")[1]) % 2 for row in rows} == {0}
    assert len(rows) == 20
    rig.pop(64)
    numbers = rig.numbers()
    assert (numbers.filtered, numbers.ready) == (20, 0)
    assert rig.findings() == []


def test_another_filter_applies_to_what_was_read_ahead(rig: Rig) -> None:
    opened(rig)
    some = [message(f"acme-{n}", tag="even" if n % 2 == 0 else "odd", properties={"tenant": "acme"}) for n in range(40)]
    send(rig, some)
    rig.pop(4)
    rig.do(ask.SetFilter("t", "g", ("tag", "odd")))
    rows = rig.pop(64)
    assert {int(row.body.split("-")[1]) % 2 for row in rows} == {1}
    rig.pop(1)
    assert rig.numbers().ready == 0
    assert rig.findings() == []


def test_a_damaged_message_is_set_aside(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 5), of("bolt", 5))
    rig.damage(2, 7)
    assert len(drained(rig)) == 8
    numbers = rig.numbers()
    assert (numbers.quarantined, numbers.ready) == (2, 0)
    assert rig.findings() == []


def test_a_message_whose_key_cannot_be_read_is_set_aside(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 5))
    for place in range(16, 30):
        rig.damage(1, place=place)
    assert len(drained(rig)) == 4
    assert rig.findings() == []


@pytest.mark.parametrize("what", ["group", "topic", "purge"])
def test_what_was_passed_goes_with_its_group_or_topic(rig: Rig, what: str) -> None:
    half_read(rig)
    commands = {"group": ask.DeleteGroup("g"), "topic": ask.DeleteTopic("t"), "purge": ask.PurgeTopic("t")}
    rig.do(commands[what])
    rig.advance(MINUTE)
    rig.settle()
    assert rig.read("taken") == []
    assert rig.findings() == []


def test_a_purged_topic_goes_on_by_turns(rig: Rig) -> None:
    half_read(rig)
    rig.do(ask.PurgeTopic("t"))
    rig.settle()
    send(rig, of("acme", 5), of("bolt", 2))
    assert tenants(rig.pop(4)) == ["acme", "bolt", "acme", "bolt"]
    assert rig.findings() == []


def test_queues_that_are_added_later_take_part(rig: Rig) -> None:
    opened(rig, queues=1)
    send(rig, of("acme", 20))
    rig.pop(1)
    rig.do(ask.UpdateTopic("t", 4, None))
    send(rig, of("bolt", 5))
    send(rig, of("cove", 5))
    assert Counter(tenants(rig.pop(9))) == {"acme": 3, "bolt": 3, "cove": 3}
    assert rig.findings() == []


def test_check_finds_what_was_passed_beyond_the_end_and_before_the_position(rig: Rig) -> None:
    half_read(rig)
    (key, value), *_ = rig.read("taken")
    beyond = TAKEN_KEY.pack(*TAKEN_KEY.unpack(key)[:3], 7)
    rig.write(lambda kv: kv.put("taken", beyond, b"\x01"))
    assert any("block 7 of what it passed beyond that is wrong" in sentence for sentence in rig.findings())

    def put_back(kv: Transaction) -> None:
        kv.delete("taken", beyond)

    rig.write(put_back)
    rig.write(lambda kv: kv.put("taken", key, b"\x01"))
    assert any("block 0 of what it passed beyond that is wrong" in sentence for sentence in rig.findings())
    rig.write(lambda kv: kv.put("taken", key, value))


# ── What does not go together ────────────────────────────────────────────────────────────────────────────────────────


def test_owners_pull_and_share_numbers_are_refused(rig: Rig) -> None:
    opened(rig)
    assert refusal(rig.run(ask.AttachOwner("g", "o", MINUTE, topic="t"))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.SetConsumeMode("t", "g", "PULL", 0))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.SetConsumeMode("t", "g", "POP", 2))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.UpdateGroup("g", {"share_number": 2}))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.Pop("t", "g", queues=(0,)))[0]) == "INVALID_FIELD"
    assert rig.findings() == []


def test_fair_keys_are_refused_to_a_group_that_does_these(rig: Rig) -> None:
    rig.pair(share_number=1)
    assert refusal(update(rig, TENANTS)) == "INVALID_FIELD"
    rig.do(ask.UpdateGroup("g", {"share_number": 0}))
    rig.do(ask.SetConsumeMode("t", "g", "PULL", 0))
    assert refusal(update(rig, TENANTS)) == "INVALID_FIELD"
    rig.do(ask.SetConsumeMode("t", "g", "POP", 0))
    rig.attach()
    assert refusal(update(rig, TENANTS)) == "INVALID_FIELD"


def test_fifo_topics_are_refused(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 1, False, 72 * HOUR, "FIFO"))
    rig.group("g", fair_keys=TENANTS)
    assert refusal(rig.run(ask.Pop("f", "g"))[0]) == "INVALID_FIELD"
    rig.group("h")
    rig.pop(topic="f", group="h")
    assert refusal(rig.run(ask.UpdateGroup("h", {"fair_keys": TENANTS}))[0]) == "INVALID_FIELD"


def test_a_group_that_passed_messages_out_of_order_may_not_pull_until_it_has_passed_the_others(rig: Rig) -> None:
    half_read(rig)
    update(rig, None)
    assert refusal(rig.run(ask.SetConsumeMode("t", "g", "PULL", 0))[0]) == "INVALID_FIELD"
    assert refusal(rig.run(ask.AttachOwner("g", "o", MINUTE, topic="t"))[0]) == "INVALID_FIELD"
    drained(rig, 64)
    assert rig.do(ask.SetConsumeMode("t", "g", "PULL", 0))
    assert rig.findings() == []


def test_the_same_group_may_be_created_again_after_its_fair_keys_were_turned_off(rig: Rig) -> None:
    rig.group("g", fair_keys=TENANTS)
    rig.group("g", fair_keys=TENANTS)
    update(rig, None)
    rig.group("g")
    with pytest.raises(Exception, match="fair_keys"):
        rig.group("g", fair_keys=TENANTS)
