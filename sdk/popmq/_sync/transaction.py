# Written by sdk/twin.py from popmq/_async/transaction.py: change that one.
"""A transaction: a block whose half messages become visible when it ends."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from popmq._runtime.later import Later
from popmq.duration import Duration
from popmq.errors import PartlyRefused, PopMQError

if TYPE_CHECKING:
    from popmq import message as _message
    from popmq._calls import send_calls
    from popmq.message import Body, Message, SendReceipt
    from popmq.transaction import Resolution
else:
    send_calls = Later("popmq._calls.send_calls")
    _message = Later("popmq.message")

log = logging.getLogger("popmq.transactions")


class Transaction:
    """Messages of one topic that become visible when their block ends, and never when it fails.

        with client.transaction("orders") as tx:
            tx.send("paid")
            ...                     # what must not happen without the message, nor the message without it

    Leaving the block commits; an exception rolls back and propagates. `receipts` has the half messages while the block
    runs, and their places after the commit. Up to 4,096 messages are committed by one request, all or none. When the
    process dies in between, the broker asks (`client.transactions.on_check`).
    """

    def __init__(self, topic: str, client: Any) -> None:
        self.topic = topic
        self.receipts: list[SendReceipt] = []
        self._client = client
        self._begun = False
        self._ended = False

    @overload
    def send(self, messages: Message | Body, *, timeout: Duration | None = None) -> SendReceipt: ...  # type: ignore[overload-overlap]  # a str is an iterable too

    @overload
    def send(self, messages: Iterable[Message | Body], *, timeout: Duration | None = None) -> list[SendReceipt]: ...

    def send(
        self, messages: Message | Body | Iterable[Message | Body], *, timeout: Duration | None = None
    ) -> SendReceipt | list[SendReceipt]:
        """Stores one half message or many, as `client.send` does; returns the receipt or the receipts.

        Raises what `client.send` raises.
        """
        if self._ended:
            raise RuntimeError("this transaction has ended: send in a new one")
        if not self._begun:
            raise RuntimeError("this transaction has not begun: send in its `with` block, which commits at its end")
        given, one = send_calls.listed(messages)
        try:
            half = [_half(message) for message in given]
            sent: list[SendReceipt] = self._client.send(self.topic, half, timeout=timeout)
        except PartlyRefused as error:
            self.receipts += [result for result in error.results if isinstance(result, _message.SendReceipt)]
            raise
        self.receipts += sent
        return sent[0] if one else sent

    def commit(self, *, timeout: Duration | None = None) -> None:
        """Makes its messages visible now. Raises as `client.transactions.end` does."""
        self._end("commit", timeout)

    def rollback(self, *, timeout: Duration | None = None) -> None:
        """Drops its messages now."""
        self._end("rollback", timeout)

    def __enter__(self) -> Self:
        self._begun = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._ended:
            return
        if error is None:
            self.commit()
            return
        try:
            self.rollback()
        except PopMQError as refused:
            # The handler's own error says more. These messages stay uncommitted, and the broker asks about them.
            log.warning(
                "a transaction of %s could not be rolled back; the broker will ask its checker: %s", self.topic, refused
            )

    def _end(self, resolution: Resolution, timeout: Duration | None) -> None:
        self._ended = True
        half = [receipt.transaction_id for receipt in self.receipts if receipt.transaction_id]
        if half:
            self.receipts = self._client.transactions.end(half, resolution, timeout=timeout)


def _half(message: Message | Body) -> Message:
    if isinstance(message, _message.Message):
        return replace(message, transaction=True)
    return _message.Message(message, transaction=True)
