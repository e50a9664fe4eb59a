"""What an operator has closed is refused to everybody; what was accepted before is kept as it was promised."""

import json
from typing import Any

import pytest

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.errors import Refused
from tests.engine import lites
from tests.engine.conftest import MakeRig
from tests.engine.rig import MINUTE, SECOND, Rig, bodies, refusal, sealing, sending
from tests.engine.traffic.traffic_timing import ending, later, send, timed_pair

READS = {
    "Pop": ask.Pop("t", "g"),
    "Pop of an owner": sealing(1),
    "WaitAvailable": ask.Available("t", "g"),
    "Pull": ask.Pull("t", "g", 0, 0),
    "Pull of the retry topic": ask.Pull("%RETRY%g+t", "g", 0, 0),
}


def permit(rig: Rig, permission: str, topic: str = "t") -> None:
    rig.do(ask.UpdateTopic(topic, 0, None, (("permission", permission),)))


def consume(rig: Rig, enable: bool, group: str = "g") -> None:
    rig.do(ask.UpdateGroup(group, {"consume_enable": enable}))


def open_for(rig: Rig, read: str) -> None:
    """Group g reads topic t the way that this request needs; an owner is there."""
    rig.attach()
    if read.startswith("Pull"):
        rig.do(ask.SetConsumeMode("t", "g", "PULL"))


def forbidden(rig: Rig, command: Any) -> str:
    """The field that a refusal names; it must change nothing."""
    with pytest.raises(Refused) as refused:
        rig.do(command)
    assert refused.value.code == "FORBIDDEN"
    assert refused.value.action
    return refused.value.field


@pytest.mark.mechanism("S2.26")
@pytest.mark.parametrize(
    ("permission", "sends", "reads"),
    [("READ_WRITE", True, True), ("READ_ONLY", False, True), ("WRITE_ONLY", True, False), ("NO_ACCESS", False, False)],
)
@pytest.mark.parametrize("read", READS)
def test_a_permission_allows_what_it_says_and_nothing_else(
    rig: Rig, permission: str, sends: bool, reads: bool, read: str
) -> None:
    rig.pair()
    open_for(rig, read)
    rig.send("before")
    permit(rig, permission)
    if sends:
        rig.send("a")
    else:
        assert forbidden(rig, sending("a")) == "topic"
    if reads:
        rig.do(READS[read])
    else:
        assert forbidden(rig, READS[read]) == "topic"
    permit(rig, "READ_WRITE")
    rig.send("b")
    rig.do(READS[read])


@pytest.mark.mechanism("S2.25")
@pytest.mark.parametrize("read", READS)
def test_a_group_that_may_not_consume_is_refused_and_others_are_not(rig: Rig, read: str) -> None:
    rig.pair()
    rig.group("other")
    open_for(rig, read)
    rig.send("a")
    consume(rig, False)
    assert forbidden(rig, READS[read]) == "group"
    assert bodies(rig.pop(group="other")) == ["a"]
    consume(rig, True)
    rig.do(READS[read])


def test_a_refused_read_changes_nothing(rig: Rig) -> None:
    rig.topic()
    rig.group()
    rig.send("a")
    permit(rig, "WRITE_ONLY")
    before = rig.read("poff"), rig.read("stat"), rig.read("sub")
    forbidden(rig, ask.Pop("t", "g", filter=("tag", "x")))
    assert (rig.read("poff"), rig.read("stat"), rig.read("sub")) == before


def test_a_reader_without_a_group_needs_the_topic_only(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    consume(rig, False)
    assert len(rig.do(ask.Pull("t", "", 0, 0)).rows) == 1
    permit(rig, "WRITE_ONLY")
    assert forbidden(rig, ask.Pull("t", "", 0, 0)) == "topic"


@pytest.mark.slow
def test_leased_messages_are_settled_in_a_closed_topic_and_group(rig: Rig) -> None:
    rig.pair()
    rig.send("a", "b", "c", "d")
    first, second, third, fourth = rig.pop()
    permit(rig, "NO_ACCESS")
    consume(rig, False)
    assert rig.ack([first]) == [None]
    assert [refusal(result) for result in rig.extend([second], 5 * MINUTE)] == [""]
    assert [refusal(result) for result in rig.release([third], delay_ms=0)] == [""]
    assert [refusal(result) for result in rig.reject([fourth], "no")] == [""]
    rig.advance(10 * MINUTE)
    assert [message.body for message in rig.dead()] == [b"d"]
    permit(rig, "READ_WRITE")
    consume(rig, True)
    assert sorted(bodies(rig.pop())) == ["b", "c"]


def test_a_group_that_pulls_commits_and_sends_back_whatever_is_closed(rig: Rig) -> None:
    rig.topic()
    rig.group()
    rig.do(ask.SetConsumeMode("t", "g", "PULL"))
    rig.send("a", "b")
    permit(rig, "NO_ACCESS")
    consume(rig, False)
    (back,) = rig.do(ask.SendBack("t", "g", (ask.SentBack(0, 1, delay_ms=0),)))
    assert refusal(back) == ""
    rig.do(ask.UpdateOffsets("t", "g", {0: 2}))
    numbers = rig.numbers()
    assert (numbers.ready, numbers.retry) == (0, 1)


def test_delayed_and_half_messages_that_were_accepted_become_visible_in_a_topic_that_takes_no_more(rig: Rig) -> None:
    timed_pair(rig, "TRANSACTION")
    _, half = send(rig, later("later", delay_ms=10 * SECOND), later("half", transaction=True))
    permit(rig, "READ_ONLY")
    assert [refusal(ended) for ended in rig.do(ending([half], True))] == [""]
    rig.advance(MINUTE)
    assert sorted(bodies(rig.pop())) == ["half", "later"]


def test_a_dead_letter_is_redriven_into_a_topic_that_takes_no_more(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    rig.reject(rig.pop(), "no")
    permit(rig, "READ_ONLY")
    assert rig.do(operations.RedrivePiece("g")).topics == {"t": 1}
    assert bodies(rig.pop()) == ["a"]


def test_a_message_is_dead_lettered_whatever_the_permission_of_its_topic(rig: Rig) -> None:
    rig.pair()
    permit(rig, "NO_ACCESS", "%DLQ%g")
    rig.send("a")
    rig.reject(rig.pop(), "no")
    assert [message.body for message in rig.dead()] == [b"a"]


def test_a_send_whose_answer_was_lost_gets_its_place_also_after_the_topic_was_closed(rig: Rig) -> None:
    rig.topic()
    first = rig.send("a", producer="p", number=1)
    permit(rig, "READ_ONLY")
    again = rig.send("a", producer="p", number=1)
    assert (again.queue, again.first, again.duplicate) == (first.queue, first.first, True)
    assert forbidden(rig, sending("a", producer="p", number=2)) == "topic"


def test_lite_topics_have_the_permission_of_their_topic(rig: Rig) -> None:
    lites.create(rig)
    rig.group()
    lites.send(rig, "zoe:hello")
    permit(rig, "READ_ONLY", "chat")
    assert forbidden(rig, lites.sending("zoe:again")) == "topic"
    permit(rig, "WRITE_ONLY", "chat")
    assert forbidden(rig, lites.popping("zoe")) == "topic"
    permit(rig, "READ_WRITE", "chat")
    consume(rig, False)
    assert forbidden(rig, lites.popping("zoe")) == "group"
    consume(rig, True)
    assert len(lites.pop(rig, "zoe")) == 1


def test_closing_a_topic_or_a_group_wakes_its_parked_pops(rig: Rig) -> None:
    rig.pair()
    rig.do(ask.UpdateTopic("t", 0, None, (("permission", "WRITE_ONLY"),)))
    committed = rig.commit(ask.UpdateGroup("g", {"consume_enable": False}))
    assert ("g", "t") in committed.woken
    assert (None, "t") in committed.arrived


def test_settings_live_through_a_restart_and_a_store_without_them_is_open(make_rig: MakeRig) -> None:
    rig = make_rig()
    rig.pair()
    permit(rig, "WRITE_ONLY")
    consume(rig, False)
    rig.crash()
    assert rig.core.state.topics[1].permission == "WRITE_ONLY"
    assert not rig.core.state.groups[2].consume_enable


def test_a_group_of_an_older_store_may_consume(rig: Rig) -> None:
    rig.pair()
    key, value = rig.read("group")[0]
    fields = json.loads(value)
    del fields["consume_enable"]
    rig.write(lambda kv: kv.put("group", key, json.dumps(fields).encode()))
    rig.crash()
    rig.send("a")
    assert bodies(rig.pop()) == ["a"]
