"""Many calls on one connection: each gets its own answer or an error, whatever comes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.connection.limits import PeerLimits
from popmq_remoting.connection.multiplexer import Multiplexer
from popmq_remoting.errors import ConnectionLost, RemotingError, TooBusy
from popmq_remoting.wire import frames
from popmq_remoting.wire.command import Command, Request, Response


class Calls:
    """A multiplexer, and what came of each call."""

    def __init__(self, limits: PeerLimits | None = None) -> None:
        self.multiplexer = Multiplexer(limits or PeerLimits())
        self.outcomes: dict[int, Response | RemotingError] = {}

    def begin(self, body: bytes = b"", held: int = 0) -> int:
        number = len(self.outcomes) + self.multiplexer.in_flight
        return self.multiplexer.send(Request(1, {}, body), lambda outcome: self._over(number, outcome), held)

    def _over(self, number: int, outcome: Response | RemotingError) -> None:
        assert number not in self.outcomes
        self.outcomes[number] = outcome

    def feed(self, raw: bytes) -> list[Command]:
        return list(self.multiplexer.feed(raw))


def answer(opaque: int, body: bytes = b"") -> bytes:
    return frames.write(0, opaque, 1, {}, body)


def requests(raw: bytes) -> list[Command]:
    return list(frames.CommandReader().feed(raw))


def test_requests_of_a_turn_leave_together_and_each_has_its_number() -> None:
    calls = Calls()
    numbers = [calls.begin(b"%d" % index) for index in range(3)]
    sent = requests(calls.multiplexer.take())
    assert [(command.opaque, command.body) for command in sent] == [
        (number, b"%d" % index) for index, number in enumerate(numbers)
    ]
    assert calls.multiplexer.take() == b""


@given(st.permutations(range(6)), st.lists(st.integers(0, 5), max_size=4), st.data())
def test_each_call_gets_its_own_answer_whatever_the_order(
    order: list[int], strange: list[int], data: st.DataObject
) -> None:
    calls = Calls()
    numbers = [calls.begin() for _ in range(6)]
    raw = b"".join(answer(numbers[index], b"%d" % index) for index in order)
    raw += b"".join(answer(1_000 + number) for number in strange)
    cut = data.draw(st.integers(0, len(raw)))
    assert calls.feed(raw[:cut]) + calls.feed(raw[cut:]) == []
    assert {index: outcome.body for index, outcome in calls.outcomes.items() if isinstance(outcome, Response)} == {
        index: b"%d" % index for index in range(6)
    }
    assert calls.multiplexer.unmatched == len(strange)


def test_a_request_of_the_broker_with_the_number_of_a_call_is_no_answer() -> None:
    calls = Calls()
    number = calls.begin()
    (command,) = calls.feed(frames.write(39, number, 2, {}, b""))
    assert (command.code, command.is_oneway) == (39, True)
    assert calls.outcomes == {}
    calls.multiplexer.answer(command, Response(0, "fine", {"a": "b"}, b"x"))
    (own, replied) = requests(calls.multiplexer.take())
    assert (own.opaque, own.is_answer) == (number, False)
    assert (replied.opaque, replied.is_answer, replied.fields, replied.body) == (number, True, {"a": "b"}, b"x")


def test_an_answer_that_comes_twice_or_late_reaches_nobody() -> None:
    calls = Calls()
    first, second = calls.begin(), calls.begin()
    calls.multiplexer.forget(second)
    calls.feed(answer(first) + answer(first) + answer(second))
    assert list(calls.outcomes) == [0]
    assert calls.multiplexer.unmatched == 2


def test_requests_above_the_number_are_refused_until_one_is_answered() -> None:
    calls = Calls(PeerLimits(in_flight=2))
    first = calls.begin()
    calls.begin()
    with pytest.raises(TooBusy) as refused:
        calls.begin()
    assert refused.value.retry_after_ms > 0
    assert not refused.value.maybe_done
    calls.feed(answer(first))
    calls.begin()


def test_bytes_above_the_limit_are_refused_until_their_call_is_over_and_sent() -> None:
    calls = Calls(PeerLimits(in_flight_bytes=2_000))
    first = calls.begin(bytes(1_500))
    with pytest.raises(TooBusy):
        calls.begin(bytes(1_500))
    calls.multiplexer.forget(first)
    with pytest.raises(TooBusy):
        calls.begin(bytes(1_500))  # its deadline is over, but the broker has not read it
    raw = calls.multiplexer.take()
    with pytest.raises(TooBusy):
        calls.begin(bytes(1_500), held=len(raw))
    calls.begin(bytes(1_500), held=0)


def test_a_refused_request_leaves_nothing_behind() -> None:
    calls = Calls(PeerLimits(in_flight_bytes=100))
    with pytest.raises(TooBusy):
        calls.begin(bytes(500))
    assert (calls.multiplexer.in_flight, calls.multiplexer.take()) == (0, b"")


def test_the_end_of_a_connection_ends_each_call_with_an_error_of_its_own() -> None:
    calls = Calls()
    calls.begin()
    calls.begin()
    calls.multiplexer.fail("gone")
    first, second = calls.outcomes.values()
    assert isinstance(first, ConnectionLost)
    assert first.maybe_done
    assert first is not second
    assert calls.multiplexer.in_flight == 0


def test_numbers_begin_again_and_pass_over_those_that_are_in_use() -> None:
    calls = Calls()
    calls.begin()
    calls.multiplexer._opaque = (1 << 31) - 2
    assert [calls.begin(), calls.begin()] == [(1 << 31) - 1, 2]
