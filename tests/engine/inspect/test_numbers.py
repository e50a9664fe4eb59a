"""The numbers that people look at: equal to what is in the store, whoever asks and whenever."""

from tests.engine.rig import MINUTE, SECOND, Rig


def test_the_oldest_message_is_found_in_any_queue_of_a_lease(rig: Rig) -> None:
    rig.topic(queues=2)
    rig.group()
    stored = []
    for text in "abcd":
        rig.send(text)
        stored.append(rig.now)
        rig.skip(SECOND)
    rows = sorted(rig.pop(), key=lambda row: row.body)
    for place, row in enumerate(rows):
        assert rig.numbers().oldest_ms == stored[place]
        rig.ack([row])
    assert rig.numbers().oldest_ms == 0


def test_the_oldest_message_is_found_in_a_queue_in_backoff_and_in_the_retry_topic(rig: Rig) -> None:
    rig.pair()
    rig.send("a")
    stored = rig.now
    rig.skip(SECOND)
    rig.send("b")
    assert rig.numbers().oldest_ms == stored
    rig.release(rig.pop(1), delay_ms=MINUTE)
    assert rig.numbers().oldest_ms == stored
    rig.advance(MINUTE)
    assert (rig.numbers().retry, rig.numbers().oldest_ms) == (1, stored)
