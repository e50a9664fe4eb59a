"""A map without room: what frees goes on, what needs room waits, and a store in which room was made heals by itself.

The map is really full: nothing is injected.
"""

import logging

import pytest

from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.embedded.state.jobs import RETRY_MS
from popmq_server.embedded.store.checkpoint import decode
from popmq_server.embedded.store.keys import U64
from popmq_server.errors import Refused
from popmq_server.values.handles import make_handle
from tests.engine.conftest import MakeRig
from tests.engine.rig import MINUTE, SECOND, Delivery, Rig, bodies, message, refusal, refusals, sending
from tests.known import known

MIB = 1 << 20
BODY = "x" * 60_000


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "popmq")


def send_large(rig: Rig, topic: str, number: int) -> str:
    """A message of 60 kB; the code when it is refused."""
    entry = message(BODY, f"{topic}{number}")
    return refusal(rig.run(ask.Send(topic, (entry,), "", 0, len(entry.data)))[0])


def pop_all(rig: Rig, topic: str, group: str, step_ms: int = 0) -> int:
    """Leases all messages in batches of 10; the leases end `step_ms` apart."""
    count = 0
    while rows := rig.popped(topic, group, max_messages=10, max_bytes=1 << 30).rows:
        count += len(rows)
        rig.skip(step_ms)
    return count


@pytest.fixture
def dying(make_rig: MakeRig) -> Rig:
    """64 MiB, as full as sends may make them; all of it leased by a group with one attempt, and the leases have ended.

    Topic `ballast` has a quarter of it; `small` has two messages, which group `other` has leased.
    """
    rig = make_rig(map_bytes=64 * MIB)
    for name in ("big", "ballast", "small"):
        rig.topic(name)
    rig.group("dying", max_attempts=1)
    rig.group("other")
    rig.send("a", "b", topic="small")
    for number in range(250):
        assert not send_large(rig, "ballast", number)
    number = 0
    while not send_large(rig, "big", number):
        number += 1
    assert rig.pop(1, "small", "other")
    pop_all(rig, "big", "dying", step_ms=100)
    settle(rig, 70 * SECOND)
    return rig


def settle(rig: Rig, ms: int, step_ms: int = 100) -> None:
    """Time passes in small steps, and a broker that spins fails."""
    for _ in range(ms // step_ms):
        rig.skip(step_ms)
        for _ in range(100):
            if not rig.due:
                break
            rig.run()
        assert not rig.due


def small(rig: Rig) -> list[Delivery]:
    return rig.pop(topic="small", group="other")


@pytest.mark.slow
def test_dead_letters_without_room_wait_in_their_leases_and_are_counted(dying: Rig) -> None:
    numbers = dying.numbers("dying", "big")
    assert known(numbers.dead_blocked) > 100
    assert (numbers.in_flight, numbers.ready, numbers.retry) == (numbers.dead_blocked, 0, 0)
    assert numbers.dead == len(dying.dead("dying"))
    assert numbers.dead + known(numbers.dead_blocked) == dying.look(queries.Topics("big"))[0].messages


@pytest.mark.slow
def test_other_leases_go_on_while_dead_letters_have_no_room(dying: Rig) -> None:
    assert bodies(small(dying)) == ["b", "a"]
    settle(dying, MINUTE)
    rows = small(dying)
    assert sorted(bodies(rows)) == ["a", "b"]
    assert dying.ack(rows[:1], "other") == [None]
    assert not refusals(dying.extend(rows[1:], MINUTE, "other"))[0]
    assert dying.ack(rows[1:], "other") == [None]


@pytest.mark.slow
def test_acks_are_never_refused_for_lack_of_room(dying: Rig) -> None:
    """A late ack of a dead letter that waits for room is accepted, and frees only its lease."""
    before = dying.numbers("dying", "big")
    batches = [decode(U64.unpack(key)[0], memoryview(raw)) for key, raw in dying.read("ck")]
    handles = [make_handle(ck.ck_id, ck.members - 1, ck.nonce) for ck in batches if ck.members == 10]
    for handle in handles[:20]:
        assert dying.do(ask.Ack("dying", (handle,))).results == [None]
    after = dying.numbers("dying", "big")
    assert (after.acked, after.dead_blocked) == (20, known(before.dead_blocked) - 20)


@pytest.mark.slow
def test_a_full_map_heals_within_seconds_when_another_topic_is_deleted(dying: Rig) -> None:
    """Dead letters that fit are written; the others stay leased, and sends are refused."""
    dead_blocked = known(dying.numbers("dying", "big").dead_blocked)
    dying.do(ask.DeleteTopic("ballast"))
    settle(dying, 5 * SECOND)
    numbers = dying.numbers("dying", "big")
    assert known(numbers.dead_blocked) < dead_blocked - 200
    assert numbers.dead + known(numbers.dead_blocked) == dying.look(queries.Topics("big"))[0].messages
    dying.do(ask.PurgeTopic("big"))
    settle(dying, 5 * SECOND)
    dying.send("c", topic="small")
    assert "c" in bodies(small(dying))
    assert dying.numbers("dying", "big").dead_blocked == 0


@pytest.mark.slow
def test_a_restart_of_a_full_store_finds_the_same(dying: Rig) -> None:
    before = dying.numbers("dying", "big")
    dying.crash()
    settle(dying, 2 * RETRY_MS)
    assert dying.numbers("dying", "big")._replace(read_ms=0) == before._replace(read_ms=0)
    assert refusal(dying.run(sending("c", topic="small"))[0]) == "STORAGE_FULL"


@pytest.mark.slow
def test_a_purge_of_more_than_the_map_has_room_to_note_ends(dying: Rig) -> None:
    """A commit lists the pages that it frees; in a full and scattered map a long list finds no place."""
    dying.do(ask.DeleteTopic("big"))
    dying.do(ask.DeleteTopic("ballast"))
    settle(dying, 20 * SECOND)
    assert dying.read("purge") == []
    assert not isinstance(dying.run(sending("c", topic="small"))[0], Refused)
