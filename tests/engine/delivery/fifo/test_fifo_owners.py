"""FIFO topics and owners: message groups belong to a part, wait tied when the lease ends, and are torn together."""

from popmq_server.values.outgoing import hash8
from tests.engine.rig import HOUR, SECOND, Delivery, Rig, bodies, deliveries
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo, send_more


def sealed(rig: Rig, epoch: int, part: int = 0, chunk: int = 0, **asked: object) -> list[str]:
    return [row.body for row in rows_of(rig, epoch, part, chunk, **asked)]


def rows_of(rig: Rig, epoch: int, part: int = 0, chunk: int = 0, **asked: object) -> list[Delivery]:
    return deliveries(rig.seal(epoch, part, chunk, **asked))


def test_later_chunks_of_a_part_take_more_of_its_message_groups_and_other_parts_do_not(rig: Rig) -> None:
    fifo_pair(rig)
    rig.attach(topic="t")
    send_fifo(rig, "a1", "a2", "a3", "b1")
    assert sealed(rig, 1, 0, 0, max_messages=1) == ["a1"]
    assert sealed(rig, 1, 0, 1, max_messages=1) == ["a2"]
    assert sealed(rig, 1, 1, 0) == ["b1"]
    rig.ack_up_to(1)
    assert sealed(rig, 2) == ["a3"]


def test_a_released_set_is_taken_back_whole_and_locked_again(rig: Rig) -> None:
    fifo_pair(rig)
    rig.attach(topic="t", lease_ms=SECOND)
    send_fifo(rig, "a1", "a2", "b1")
    assert sealed(rig, 1, invisible_ms=SECOND) == ["a1", "a2", "b1"]
    rig.advance(SECOND)
    assert rig.numbers().waiting == 3
    assert sealed(rig, 1) == ["a1", "a2", "b1"]
    assert rig.pop() == []
    assert rig.numbers().waiting == 0


def test_the_first_foreign_pop_takes_the_later_messages_of_its_message_group_too(rig: Rig) -> None:
    fifo_pair(rig)
    rig.attach(topic="t", lease_ms=SECOND)
    send_fifo(rig, "a1", "a2", "b1")
    sealed(rig, 1, invisible_ms=SECOND)
    rig.advance(SECOND)
    thief = rig.pop(1)
    assert bodies(thief) == ["a1"]
    answer = rig.seal(1)
    assert [row.body for row in rows_of(rig, 1)] == ["b1"]
    assert answer.sealed == (3, True, 2, 0)
    rig.ack(thief)
    assert bodies(rig.pop()) == ["a2"]


def test_ack_up_to_after_the_lease_finishes_waiting_messages(rig: Rig) -> None:
    fifo_pair(rig)
    rig.attach(topic="t", lease_ms=SECOND)
    send_fifo(rig, "a1", "a2")
    sealed(rig, 1, invisible_ms=SECOND)
    rig.advance(SECOND)
    assert rig.ack_up_to(1) == 2
    assert rig.pop() == []
    assert rig.numbers().waiting == 0


def test_an_owner_that_is_forgotten_leaves_ordinary_waiting_messages(rig: Rig) -> None:
    fifo_pair(rig)
    rig.attach(topic="t", lease_ms=SECOND)
    send_fifo(rig, "a1", "a2")
    sealed(rig, 1, invisible_ms=SECOND)
    rig.advance(8 * 24 * HOUR)
    assert [(row.body, row.attempt) for row in rig.pop()] == [("a1", 2), ("a2", 2)]


def test_hashes_of_message_groups_are_read_from_what_was_sent(rig: Rig) -> None:
    fifo_pair(rig)
    send_more(rig, [("ünïcode group", "x1"), ("ünïcode group", "x2")])
    rig.pop(1)
    rig.pop()
    assert [key[2] for key in rig.core.state.waiting] == [hash8("ünïcode group")]
