"""When an address that failed is tried again."""

from popmq_remoting.connection.breaker import Breaker
from popmq_remoting.connection.limits import PeerLimits


def test_pauses_double_from_one_second_to_five_and_are_one_second_where_nothing_listens() -> None:
    """Also after longer pauses."""
    breaker, now_s, pauses = Breaker(PeerLimits()), 100.0, []
    for refused in (False, False, False, False, False, True, True, False):
        breaker.failed(now_s, refused=refused)
        pauses.append(breaker.left_s(now_s))
        now_s += pauses[-1]
        assert breaker.admits(now_s)
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0, 1.0, 1.0, 2.0]


def test_one_call_tries_after_the_pause_and_the_others_do_not() -> None:
    breaker = Breaker(PeerLimits())
    assert [breaker.admits(0.0), breaker.admits(0.0)] == [True, True]
    breaker.failed(0.0)
    assert [breaker.admits(0.9), breaker.admits(1.0), breaker.admits(1.0), breaker.admits(9.0)] == [
        *(False, True, False, False)
    ]
    breaker.succeeded()
    assert breaker.is_closed
    assert [breaker.admits(9.0), breaker.admits(9.0)] == [True, True]


def test_after_a_success_the_pauses_begin_anew() -> None:
    breaker = Breaker(PeerLimits())
    breaker.failed(0.0)
    breaker.failed(1.0)
    breaker.succeeded()
    breaker.failed(10.0)
    assert breaker.left_s(10.0) == 1.0
