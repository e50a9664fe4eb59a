# Written by sdk/twin.py from popmq/_async/calls/transactions.py: change that one.
"""Calls of transactions: ending half messages, and the checker that answers check-backs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, overload

from popmq._calls.pop_calls import all_or_raise
from popmq._runtime.later import Later
from popmq._sync.client_parts import Namespace
from popmq._sync.transport.wire import Wire
from popmq.duration import Duration
from popmq.errors import PopMQError

if TYPE_CHECKING:
    from popmq._calls import inspection_calls, send_calls
    from popmq._sync.background.checker import Checker
    from popmq.message import SendReceipt
    from popmq.transaction import HalfMessages, OnCheck, Resolution
else:
    inspection_calls = Later("popmq._calls.inspection_calls")
    send_calls = Later("popmq._calls.send_calls")


class TransactionCalls(Namespace):
    """Half messages that are not ended, and check-backs about them."""

    def __init__(self, wire: Wire, client_id: str, checker: Checker) -> None:
        super().__init__(wire, client_id)
        self._checker = checker

    def on_check(self, topic: str, callback: OnCheck) -> None:
        """Answers check-backs for half messages of `topic` whose producer died before it ended them.

        `callback` gets a TransactionCheck and returns "commit", "rollback", or None for "not known yet"; an exception
        counts as None and is logged. It is asked in the background, one check after another, on a stream that is opened
        again whenever the broker comes back, until the client is closed. Every process that sends transactions should
        have one. With asyncio, call this in the event loop; there the callback may be a coroutine function.
        A topic that does not exist, or takes no half messages, is logged as an error and tried again every 5 s; the
        other topics are answered meanwhile. Raises TypeError for a callback that cannot be called;
        ClientClosed.
        """
        self._checker.answer_for(topic, callback)

    @overload
    def end(  # type: ignore[overload-overlap]  # a str is an iterable too
        self, transaction_ids: str, resolution: Resolution, *, timeout: Duration | None = None
    ) -> SendReceipt: ...

    @overload
    def end(
        self, transaction_ids: Iterable[str], resolution: Resolution, *, timeout: Duration | None = None
    ) -> list[SendReceipt]: ...

    def end(
        self, transaction_ids: str | Iterable[str], resolution: Resolution, *, timeout: Duration | None = None
    ) -> SendReceipt | list[SendReceipt]:
        """Commits half messages or rolls them back, by `transaction_id`; may be repeated for an hour.

        The receipts of a commit have the places of the messages. Raises TransactionNotFound; TransactionEnded if it was
        ended the other way; PartlyRefused if some of many are refused.
        """
        one = isinstance(transaction_ids, str)
        rows: list[str] = [transaction_ids] if one else list(transaction_ids)  # type: ignore[list-item]  # as `one` tells
        results: list[Any] = []
        for call in send_calls.end_transactions(rows, resolution):
            try:
                ended = self._wire.run(call, timeout=timeout)
            except PopMQError as error:
                if not results:
                    raise
                results += [error] * (len(rows) - len(results))
                break
            results += ended
        all_or_raise(results)
        return results[0] if one else results

    def list(self, topic: str = "", max_messages: int = 100, *, timeout: Duration | None = None) -> HalfMessages:
        """Half messages of a topic, or of all, that are not ended; in each topic oldest first. Raises TopicNotFound."""
        return self._wire.run(inspection_calls.list_transactions(topic, max_messages), timeout=timeout)
