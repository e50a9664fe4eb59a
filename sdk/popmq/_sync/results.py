# Written by sdk/twin.py from popmq/_async/results.py: change that one.
"""Calls that ask for results of messages, and forget them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from popmq._runtime.later import Later
from popmq._sync.transport.wire import Wire
from popmq.duration import Duration, seconds_of
from popmq_http2.elapsed import monotonic

if TYPE_CHECKING:
    from popmq._calls import settle_calls
    from popmq.outcome import Result
else:
    settle_calls = Later("popmq._calls.settle_calls")


class Results:
    """What messages have led to, in groups that keep results."""

    _wire: Wire

    def result(self, message_id: str, group: str, wait: Duration = 0.0, *, timeout: Duration | None = None) -> Result:
        """The result of a message for a group; waits for it up to `wait`.

        A message that became a dead letter has a failed result. An id that is not known is waited for, too: its message
        may not be sent yet. Raises ResultTimeout if there is none in time, GroupNotFound, InvalidField for a group that
        keeps no results, PollingFull, Unsupported.
        """
        found = self.results([message_id], group, wait, timeout=timeout)
        if message_id not in found:
            raise settle_calls.no_result(message_id, group, seconds_of(wait, "wait"))
        return found[message_id]

    def results(
        self,
        message_ids: Iterable[str],
        group: str,
        wait: Duration = 0.0,
        at_least: int | None = None,
        *,
        timeout: Duration | None = None,
    ) -> dict[str, Result]:
        """The results of 1–4,096 messages by message id; waits up to `wait` for `at_least` of them (None: for all).

        Returns those that are there when the wait ends, which may be none. Raises as `result`, but for ResultTimeout.
        """
        missing = settle_calls.ids_of(message_ids)
        found: dict[str, Result] = {}
        enough = len(missing) if at_least is None else min(at_least, len(missing))
        until = monotonic() + seconds_of(wait, "wait") * (enough > 0)
        while missing:
            left = max(0.0, until - monotonic())
            call = settle_calls.get_results(group, missing, min(left, settle_calls.WAIT_S), max(1, enough - len(found)))
            some, full = self._wire.run(call, timeout=timeout)
            found.update({each.message_id: each for each in some})
            missing = [each for each in missing if each not in found]
            if not full and (len(found) >= enough or monotonic() >= until):
                break
        return found

    def store_results(self, results: Mapping[str, Result], group: str, *, timeout: Duration | None = None) -> None:
        """Keeps results of 1–4,096 messages by message id, in one commit: for programs that have no delivery in hand.

        The last result of an id counts, whether it was stored or given with an ack. Raises GroupNotFound, InvalidField
        for a group that keeps no results, StorageFull, Unsupported.
        """
        self._wire.run(settle_calls.store_results(group, results), timeout=timeout)

    def forget_results(self, message_ids: str | Iterable[str], group: str, *, timeout: Duration | None = None) -> None:
        """Forgets results of 1–4,096 messages; ids without one are ignored. A result that is given later is kept.

        Raises GroupNotFound, InvalidField for a group that keeps no results, StorageFull.
        """
        self._wire.run(settle_calls.forget_results(group, settle_calls.ids_of(message_ids)), timeout=timeout)
