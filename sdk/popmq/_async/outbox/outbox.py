"""AsyncOutbox: makes boxes, and knows the database that decides about their messages."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, overload

from popmq import message as _message
from popmq._async.concurrency import at_exit
from popmq._async.outbox.asking import Asking
from popmq._async.outbox.connections import check_database, reach
from popmq._async.outbox.finishing import Finishing, Sent
from popmq._calls import send_calls
from popmq._outbox.libraries import leaves_marker
from popmq._outbox.verdicts import PROPERTY
from popmq._runtime import forks
from popmq.duration import Duration, seconds_of
from popmq.errors import ClientClosed, OutsideTransaction, PartlyRefused, TopicNotFound
from popmq.message import Body, Delivery, Message, SendReceipt
from popmq.transaction import Resolution, TransactionCheck

log = logging.getLogger("popmq.outbox")

#: Seconds that the end of a program waits for messages of transactions that have ended.
EXIT_S = 1.0
GIVE_UP_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"


class AsyncOutbox:
    """Sends messages that are seen if and only if a transaction of a database commits.

        outbox = popmq.AsyncOutbox(client, engine)
        outbox.answer("orders")                      # in at least one process that keeps running
        async with outbox(session) as box:           # in a transaction of the session
            await box.send("orders", "paid")

    `database` is asked how transactions ended, on a connection of its own: "postgresql://…", "mysql://…", the path of
    an SQLite file, an engine of SQLAlchemy, a connection of Django (its alias counts), or a function that returns a new
    connection in autocommit. Make it after a fork, as the client. Raises TypeError, and ValueError for an SQLite
    database in memory.
    """

    def __init__(self, client: Any, database: Any) -> None:
        check_database(database)
        self._client = client
        self._asking = Asking(database)
        self._finishing = Finishing(client, self._asking)
        self._born = forks.count
        at_exit(self)

    def __call__(self, connection: Any) -> AsyncBox:
        """Returns a `with` block that sends in the transaction of a session or connection: see `AsyncBox`."""
        return AsyncBox(self, connection)

    def answer(self, *topics: str) -> None:
        """Answers the broker's check-backs about messages of these topics, in the background, until the client closes.

        For messages of processes that have died, of any outbox of this database. Some process must do it whenever one
        may die; several may. It is the `on_check` of these topics, and raises as that does.
        """
        for topic in topics:
            self._client.transactions.on_check(topic, self._check)

    async def redrive(self, *, timeout: Duration | None = None) -> dict[str, str]:
        """Makes visible what the broker gave up, if the database can say now that the transaction committed.

        Returns the reason of each message that stays given up, by its id: it rolled back, or is still not known. Raises
        what `client.dead_letters.redrive` raises.
        """
        stays: dict[str, str] = {}
        token, is_first = "", True
        while token or is_first:
            try:
                page = await self._client.messages.browse(
                    GIVE_UP_TOPIC, order="oldest", page_token=token, timeout=timeout
                )
            except TopicNotFound:  # nothing has ever been given up
                return stays
            token, is_first = page.next_page_token, False
            stays |= await self._redrive([one for one in page.deliveries if PROPERTY in one.properties], timeout)
        return stays

    async def flush(self, timeout: Duration = 5.0) -> bool:
        """Waits until the messages of all boxes that were left have ended, at most so long; returns whether they have.

        Those of a transaction that goes on have not.
        """
        return await self._finishing.flush(seconds_of(timeout, "timeout"))

    async def close(self) -> None:
        """Ends the messages of transactions that have ended, and closes its connection to the database.

        In a forked child: nothing, since that connection is its parent's.
        """
        if forks.without_threads(self._born):
            return
        await self.flush(EXIT_S)
        await self._finishing.stop()
        await self._asking.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _leave(self) -> None:
        """At the end of the program."""
        if not forks.without_threads(self._born):
            await self.flush(EXIT_S)

    async def _redrive(self, given_up: list[Delivery], timeout: Duration | None) -> dict[str, str]:
        """Commits those whose transaction committed. The reasons of the others."""
        verdicts = await self._asking.ended([one.properties[PROPERTY] for one in given_up])
        ids: dict[str, list[str]] = {}
        reasons: dict[str, str] = {}
        for one, verdict in zip(given_up, verdicts, strict=True):
            if verdict.resolution == "commit" and one.dead_letter:
                ids.setdefault(one.dead_letter.topic, []).append(one.message_id)
            else:
                reasons[one.message_id] = verdict.reason
        for topic, of_topic in ids.items():
            await self._client.dead_letters.redrive("", topic=topic, message_ids=of_topic, timeout=timeout)
        return reasons

    async def _check(self, check: TransactionCheck) -> Resolution | None:
        place = check.message.properties.get(PROPERTY, "")
        try:
            (verdict,) = await self._asking.ended([place])
        except ClientClosed:
            return None
        if verdict.resolution is None and not verdict.is_open:
            log.warning("message %s of %s is not decided: %s", check.message.message_id, check.topic, verdict.reason)
        if verdict.resolution == "commit" and leaves_marker(place):  # the answer may be lost: end it, then
            receipt = SendReceipt(check.message.message_id, -1, -1, transaction_id=check.transaction_id)
            self._finishing.add([Sent(check.topic, place, [receipt])])  # delete its marker
        return verdict.resolution


class AsyncBox:
    """Sends half messages in a transaction of a database, whose end decides about them.

        async with outbox(session) as box:
            session.add(order)
            await box.send("orders", popmq.Message.json({"order": order.number}))

    The block neither begins nor ends the transaction. It may be inside of it, or around it; when the block is left, the
    outbox begins to ask how the transaction ended. `ROLLBACK TO` a savepoint drops the messages that were sent in it.
    `receipts` has what was sent.
    """

    def __init__(self, outbox: AsyncOutbox, connection: Any) -> None:
        self.receipts: list[SendReceipt] = []
        self._outbox = outbox
        self._connection = connection
        self._sent: list[Sent] = []
        self._open = False

    @overload
    async def send(  # type: ignore[overload-overlap]  # a str is an iterable too
        self, topic: str, messages: Message | Body, *, timeout: Duration | None = None
    ) -> SendReceipt: ...

    @overload
    async def send(
        self, topic: str, messages: Iterable[Message | Body], *, timeout: Duration | None = None
    ) -> list[SendReceipt]: ...

    async def send(
        self, topic: str, messages: Message | Body | Iterable[Message | Body], *, timeout: Duration | None = None
    ) -> SendReceipt | list[SendReceipt]:
        """Asks the database where this transaction is, and stores one half message or many, as `client.send` does.

        If it raises, roll back: after a DeadlineExceeded the message may be stored, and a commit would make it visible.
        Raises OutsideTransaction, and sends nothing, if the connection is in autocommit; what `client.send` raises.
        """
        if not self._open:
            raise RuntimeError("this box is not open: send in its `with` block")
        given, one = send_calls.listed(messages)
        place = await self._place()
        half = [_half(message, place) for message in given]
        sent: list[SendReceipt] = []
        try:
            sent = await self._outbox._client.send(topic, half, timeout=timeout)
        except PartlyRefused as refused:
            sent = [result for result in refused.results if isinstance(result, SendReceipt)]
            raise
        finally:
            self.receipts += sent
            self._sent += [Sent(topic, place, sent)] * bool(sent)
        return sent[0] if one else sent

    async def __aenter__(self) -> Self:
        await self._outbox._asking.prepare()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open = False
        self._outbox._finishing.add(self._sent)
        self._sent = []

    async def _place(self) -> str:
        reached = await reach(self._connection)
        place = await reached.run(reached.kind.here())
        if not reached.in_transaction():
            raise OutsideTransaction(
                "the connection of this outbox is in no transaction, so that nothing would decide about the message",
                action="begin one, or turn autocommit off",
            )
        return place


def _half(message: Message | Body, place: str) -> Message:
    made = message if isinstance(message, _message.Message) else _message.Message(message)
    return replace(made, transaction=True, properties={**made.properties, PROPERTY: place})
