"""The process queue by itself, as tables: what is cached, what may be committed, what holds it back."""

import math

import pytest

from popmq.process_queue import ILLEGAL, FlowControl, ProcessQueue

FLOW = FlowControl(count=3, bytes=100, span=10)


def filled(*offsets: int, size: int = 10, start: int = 0, orderly: bool = False) -> ProcessQueue[str]:
    """A queue that pulled these offsets in one batch; its messages are "m" and their offset."""
    queue: ProcessQueue[str] = ProcessQueue(start, orderly=orderly)
    queue.locked_until = math.inf
    end = max(offsets, default=start - 1) + 1
    assert queue.add([(offset, size, f"m{offset}") for offset in offsets], "FOUND", end, end)
    return queue


def taken(queue: ProcessQueue[str], now: float = 0.0) -> list[str]:
    """All that can be taken now."""
    found = []
    while (message := queue.take(now)) is not None:
        found.append(message)
    return found


def test_messages_are_delivered_in_the_order_of_their_offsets() -> None:
    assert taken(filled(3, 4, 7)) == ["m3", "m4", "m7"]


@pytest.mark.mechanism("S0.07")
def test_all_counts_are_zero_again_when_everything_is_done() -> None:
    queue = filled(0, 1, 2)
    assert (queue.count, queue.bytes, queue.span, queue.in_hand) == (3, 30, 2, 0)
    taken(queue)
    assert (queue.count, queue.bytes, queue.span, queue.in_hand) == (3, 30, 2, 3)
    for offset in (1, 0, 2):
        queue.done(offset)
    assert (queue.count, queue.bytes, queue.span, queue.in_hand) == (0, 0, 0, 0)


def test_the_span_reaches_from_the_oldest_message_in_hand_to_the_newest() -> None:
    queue = filled(3, 4, 19)
    taken(queue)
    queue.done(19)
    queue.done(4)
    assert (queue.span, queue.limit(FLOW)) == (16, "span")
    queue.done(3)
    assert (queue.span, queue.limit(FLOW)) == (0, "")


def test_a_message_that_is_done_twice_is_counted_once() -> None:
    queue = filled(0, 1)
    queue.done(0)
    queue.done(0)
    assert (queue.count, queue.bytes) == (1, 10)


@pytest.mark.mechanism("S0.51")
@pytest.mark.parametrize(
    ("done", "committed"),
    [
        ([], 3),
        ([4], 3),  # the first one pins it
        ([4, 7], 3),
        ([3], 4),
        ([3, 4], 7),
        ([3, 7], 4),
        ([3, 4, 7], 8),  # one behind the greatest that was seen
    ],
)
def test_the_committed_offset_is_the_smallest_cached_one_or_the_one_after_the_greatest(
    done: list[int], committed: int
) -> None:
    queue = filled(3, 4, 7, start=3)
    taken(queue)
    for offset in done:
        queue.done(offset)
    assert queue.committed == committed


@pytest.mark.mechanism("S0.48")
def test_an_empty_answer_moves_the_committed_offset_up_when_nothing_is_cached() -> None:
    queue: ProcessQueue[str] = ProcessQueue(5)
    assert queue.add([], "NO_MATCHED_MESSAGE", 900, 1000)
    assert (queue.next_offset, queue.committed, queue.backlog) == (900, 900, 100)


def test_an_empty_answer_does_not_move_the_committed_offset_past_cached_messages() -> None:
    queue = filled(5, start=5)
    assert queue.add([], "NO_MATCHED_MESSAGE", 900, 900)
    assert (queue.next_offset, queue.committed) == (900, 5)


@pytest.mark.mechanism("S0.45")
@pytest.mark.parametrize(
    ("status", "next_offset", "legal"),
    [
        ("FOUND", 8, True),
        ("NO_MESSAGE_IN_QUEUE", 5, True),
        ("OFFSET_OVERFLOW_ONE", 5, True),
        ("OFFSET_FOUND_NULL", 7, True),
        ("NO_MATCHED_MESSAGE", 7, True),
        ("MESSAGE_WAS_REMOVING", 7, True),
        ("A_STATUS_OF_A_LATER_RELEASE", 7, True),
        ("OFFSET_TOO_SMALL", 9, False),
        ("OFFSET_OVERFLOW_BADLY", 2, False),
        ("NO_MATCHED_LOGIC_QUEUE", 0, False),
        ("NO_MESSAGE_IN_QUEUE", 0, False),  # of a topic that was deleted and made anew
    ],
)
def test_statuses_are_taken_in_or_say_that_the_offset_was_no_place_to_read_from(
    status: str, next_offset: int, legal: bool
) -> None:
    queue: ProcessQueue[str] = ProcessQueue(5)
    assert queue.add([], status, next_offset, 9) is legal
    assert queue.next_offset == (next_offset if legal else 5)


def test_the_illegal_statuses_are_names_of_the_contract() -> None:
    from popmq_proto.v1 import popmq_pb2 as pb

    assert set(pb.PullStatus.keys()) >= ILLEGAL


@pytest.mark.mechanism("S0.13", "S0.15")
@pytest.mark.parametrize(
    ("offsets", "size", "limit"),
    [
        ([], 0, ""),
        ([0, 1, 2], 10, ""),  # as many as may be
        ([0, 1, 2, 3], 10, "count"),
        ([0, 1], 50, ""),
        ([0, 1], 51, "bytes"),
        ([0, 10], 10, ""),
        ([0, 11], 10, "span"),
        ([0, 11, 12, 13], 50, "count"),
    ],
)
def test_flow_control_by_count_bytes_and_span(offsets: list[int], size: int, limit: str) -> None:
    assert filled(*offsets, size=size).limit(FLOW) == limit


@pytest.mark.mechanism("S0.15")
def test_an_orderly_queue_has_no_limit_of_span() -> None:
    assert filled(0, 11, orderly=True).limit(FLOW) == ""
    assert filled(0, 1, 2, 3, orderly=True).limit(FLOW) == "count"


@pytest.mark.mechanism("S0.14")
def test_the_limits_are_those_of_the_reference() -> None:
    assert FlowControl() == FlowControl(count=1000, bytes=104_857_600, span=2000, pause=0.05)


def test_a_delivered_message_still_counts_against_the_limits() -> None:
    queue = filled(0, 1, 2, 3)
    taken(queue)
    assert queue.limit(FLOW) == "count"
    queue.done(3)
    assert queue.limit(FLOW) == ""


def test_a_message_that_was_put_off_comes_when_it_is_time_and_before_the_others() -> None:
    queue = filled(0, 1, 2)
    assert queue.take(0.0) == "m0"
    queue.again(0, 5.0, "m0")
    assert (queue.again_at(), queue.in_hand, queue.committed) == (5.0, 0, 0)
    assert queue.take(4.9) == "m1"
    assert queue.take(5.0) == "m0"
    assert queue.again_at() is None


def test_a_message_that_is_done_is_not_delivered_again() -> None:
    queue = filled(0)
    queue.take(0.0)
    queue.done(0)
    queue.again(0, 0.0, "m0")
    assert taken(queue) == []


def test_an_orderly_queue_delivers_one_at_a_time() -> None:
    queue = filled(0, 1, orderly=True)
    assert queue.waiting(0.0)
    assert taken(queue) == ["m0"]
    assert not queue.waiting(0.0)
    queue.done(0)
    assert taken(queue) == ["m1"]


def test_a_postponed_message_of_an_orderly_queue_holds_up_the_later_ones() -> None:
    queue = filled(0, 1, orderly=True)
    queue.take(0.0)
    queue.again(0, 5.0, "m0 again")
    assert not queue.waiting(0.0)
    assert taken(queue, 4.9) == []
    assert taken(queue, 5.0) == ["m0 again"]


def test_an_orderly_queue_delivers_nothing_without_a_lock_that_is_certain() -> None:
    queue = filled(0, orderly=True)
    queue.locked_until = 30.0
    assert queue.locked(29.9)
    assert taken(queue, 30.0) == []
    assert taken(queue, 29.9) == ["m0"]
    assert not ProcessQueue[str](0, orderly=True).locked(0.0)
    assert ProcessQueue[str](0).locked(0.0)


def test_a_queue_that_leaves_delivers_nothing_and_counts_messages_in_hand() -> None:
    queue = filled(0, 1)
    queue.take(0.0)
    queue.leaving = True
    assert (taken(queue), queue.waiting(0.0)) == ([], False)
    queue.done(0)
    assert queue.committed == 1


def test_the_handled_offset_of_a_queue_without_messages_does_not_move() -> None:
    queue: ProcessQueue[str] = ProcessQueue(5)
    queue.add([], "OFFSET_OVERFLOW_ONE", 900, 900)
    assert (queue.committed, queue.handled) == (900, 5)
    queue.add([(950, 1, "m950")], "FOUND", 951, 951)
    assert queue.handled == 950
    taken(queue)
    queue.done(950)
    assert queue.handled == 951


@pytest.mark.mechanism("S0.09")
def test_a_dropped_queue_delivers_nothing() -> None:
    queue = filled(0, 1)
    queue.take(0.0)
    queue.again(0, 0.0, "m0")
    queue.drop()
    assert taken(queue) == []
    assert queue.again_at() is None


def test_a_queue_is_at_its_end_when_nothing_is_left_to_pull_or_to_deliver() -> None:
    queue: ProcessQueue[str] = ProcessQueue(5, max_offset=5)
    assert not queue.at_end  # nobody has looked yet
    queue.add([], "OFFSET_OVERFLOW_ONE", 5, 5)
    assert queue.at_end
    queue.add([(5, 1, "m5")], "FOUND", 6, 9)
    assert not queue.at_end
    queue.add([(6, 1, "m6")], "FOUND", 9, 9)
    assert not queue.at_end
    taken(queue)
    assert queue.at_end
