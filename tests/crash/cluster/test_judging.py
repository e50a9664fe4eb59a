"""What the verdict of a load finds."""

from __future__ import annotations

from tests.crash.cluster.parts.judging import judged
from tests.crash.cluster.parts.load import Histories, Seen


def test_a_delivery_behind_the_first_ok_ack_is_found_though_it_is_acked_again() -> None:
    histories = Histories(sent={"m": 0.0}, acked={"m": 1.0})
    histories.seen["m"] = [Seen(0.5, 1, 20.5, 1), Seen(1.1, 2, 21.1, 1)]
    verdict = judged(histories)
    assert (verdict.after_ack, verdict.backwards, verdict.overlaps, verdict.lost) == (["m"], ["m"], [], [])


def test_a_delivery_within_the_lease_of_another_one_is_an_overlap() -> None:
    histories = Histories(sent={"m": 0.0}, acked={"m": 9.0})
    histories.seen["m"] = [Seen(1.0, 1, 21.0, 1), Seen(5.0, 2, 25.0, 2)]
    assert judged(histories).overlaps == ["m"]
