"""Browse: pages of a queue, of a retry topic and of what waits in a FIFO topic, over whatever is missing."""

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.embedded.rules.inspect import browse
from popmq_server.values.message import Extra
from tests.engine.dead_letters import DEAD, died, piece
from tests.engine.rig import HOUR, KEEP, MINUTE, Rig, message, numbered, parsed


def pages(rig: Rig, name: str, count: int, queue: int = 0) -> list[list[str]]:
    """Page by page until the end, as `next_offset` says."""
    found: list[list[str]] = []
    at = 0
    while True:
        page = rig.browse(name, queue, at, count)
        if page.next_offset == at:
            return found
        found.append([parsed(row[0]).message_id for row in page.rows])
        at = page.next_offset


@pytest.mark.usefixtures("a_chunk_a_commit")
def test_a_hole_is_stepped_over(rig: Rig) -> None:
    rig.topic(keep_ms=HOUR)
    rig.group()
    for text in "abcde":
        rig.send(text)
    rows = rig.pop(invisible_ms=12 * HOUR)
    rig.ack(rows[1:4])
    for _ in range(2):
        rig.advance(MINUTE)
    rig.advance(HOUR)
    rig.advance(MINUTE)
    assert pages(rig, "t", 10) == [["a", "e"]]
    assert pages(rig, "t", 1) == [["a"], ["e"]]


def test_redriven_dead_letters_are_stepped_over_in_bounded_steps(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(browse, "LOOKS_MAX", 10)
    rig.pair()
    died(rig, *numbered("m", 35))
    piece(rig, offsets=tuple(range(1, 34)))
    assert pages(rig, DEAD, 5) == [["m0"], [], [], ["m34"]]


def test_waiting_messages_of_a_fifo_topic_are_browsed_page_by_page(rig: Rig) -> None:
    rig.do(ask.CreateTopic("f", 2, False, KEEP, type="FIFO"))
    rig.group()
    rig.pop(topic="f")
    texts = [f"{group}{number}" for number in range(3) for group in "abcd"]
    for text in texts:
        data = pb.Message(message_id=text, body=text.encode(), message_group=text[0]).SerializeToString()
        rig.do(ask.Send("f", (message(text)._replace(data=data, extra=Extra(text[0])),), bytes=1))
    rig.pop(1, topic="f")
    rig.pop(topic="f", messages=4)
    rig.advance(MINUTE)
    every = pages(rig, "%RETRY%g+f", 100)[0]
    assert set(every) <= set(texts)
    assert [text for page in pages(rig, "%RETRY%g+f", 3) for text in page] == every
    assert rig.numbers("g", "f").waiting == len(every)
    page = rig.browse("%RETRY%g+f")
    places = [(row[2], row[3]) for row in page.rows]
    assert places == sorted(places)
    assert page.min_offset == places[0][0] << browse.OFFSET_BITS | places[0][1]
    assert page.max_offset == page.next_offset == (places[-1][0] << browse.OFFSET_BITS | places[-1][1]) + 1
    assert {row[4] for row in page.rows} == {0, 1}, "attempts so far"
