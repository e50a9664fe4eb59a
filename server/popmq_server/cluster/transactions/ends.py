"""EndTransaction: commits and rollbacks at the broker that has the half message, which the id names.

    ended in the last minute ─── here ──▶ its answer again; the other decision is TRANSACTION_ENDED
    looked up by its id (12) ─── found ─▶ it is committed: its place, or TRANSACTION_ENDED for a rollback
    else ───────────────────────────────▶ 37, and the answer says whether it was done

Brokers carry out a second 37 as the first one: two commits deliver twice, also after a rollback. The memory covers the
milliseconds until a committed message is found by its id, for repeats that reach this gateway.

A producer whose Send had no answer has sent the half message twice, maybe to two brokers. So the end of one that a
broker asked about is looked up at all brokers of the topic; if it is found, the rollback ends the broker's questions
and leaves the committed message as it is.
"""

import asyncio
import contextlib
from typing import NamedTuple

from popmq_remoting import RemotingError, Response, ResponseCode
from popmq_remoting.messages import properties, stored
from popmq_remoting.messages.stored import StoredMessage
from popmq_remoting.requests import pulling, sending
from popmq_server.clock import pause
from popmq_server.cluster import names
from popmq_server.cluster.brokers import in_lanes, succeeded
from popmq_server.cluster.recent import Recent
from popmq_server.cluster.refusals import Asked
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed import transactions
from popmq_server.cluster.signed.transactions import SignedHalf
from popmq_server.contract.commands import End, Ended, EndTransaction, Place, TopicsOf
from popmq_server.errors import Refused

#: Of the last minute.
ENDS_MAX = 100_000
#: How far back a committed message is looked for: brokers keep half messages no longer, unless they are set otherwise.
LOOKED_BACK_MS = 3 * 86_400_000
_LATEST_MS = 2**63 - 1
#: How soon a committed message is found by its id; measured are 7 ms at most. Who hears that an end has no answer may
#: repeat it at once.
FOUND_S = 0.05
#: Of ids that are the same as this one by their hash.
_FOUND_MAX = 32
#: What brokers say of a half message that is not at the place which an id names (answer 1).
_NOT_THERE = ("prepared transaction message", "producer group wrong", "offset wrong")


class _Outcome(NamedTuple):
    """How a transaction has ended, now or before."""

    committed: bool
    ended: Ended


class Ends:
    """Commits transactions, and rolls them back."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._topics, self._layouts = shared.brokers, shared.topics, shared.layouts
        self._secrets, self._now_ms = shared.secrets, shared.now_ms
        #: By topic and message id: a check names the same message at another place.
        self._recent = Recent[tuple[str, str], _Outcome](ENDS_MAX)
        #: Times that a message was looked up before its transaction was ended.
        self.lookups = 0

    async def topics_of(self, query: TopicsOf) -> frozenset[str]:
        """Ids that no gateway has signed have no topic."""
        topics = set[str]()
        for text in query.transactions:
            with contextlib.suppress(Refused):
                topics.add(names.shown(transactions.read(self._secrets, text).half.topic))
        return frozenset(topics)

    async def end(self, command: EndTransaction) -> list[Ended | Refused]:
        """One result for each end."""
        results: list[Ended | Refused] = [Ended("", Place())] * len(command.ends)

        async def one(index: int) -> None:
            end = command.ends[index]
            try:
                results[index] = end if isinstance(end, Refused) else await self._once(end)
            except Refused as refused:
                results[index] = refused

        await in_lanes(range(len(command.ends)), one)
        return results

    async def _once(self, end: End) -> Ended:
        """Ends it, or waits for the end that is under way. Raises Refused."""
        signed = transactions.read(self._secrets, end.transaction)
        key = signed.half.topic, signed.half.message_id
        task = self._recent.known(key)
        if task is None:
            task = asyncio.ensure_future(self._end(signed, end.commit))
            self._recent.keep(key, task)
        outcome = await asyncio.shield(task)
        if outcome.committed != end.commit:
            raise _ended_otherwise(outcome)
        return outcome.ended

    async def _end(self, signed: SignedHalf, commit: bool) -> _Outcome:
        """Raises Refused."""
        found = await self._committed(signed)
        if found is not None and not signed.from_check:
            return found
        asked = Asked(signed.broker, names.shown(signed.half.topic))
        request = sending.end_transaction(signed.half, commit and found is None, signed.from_check)
        try:
            refused = await self._brokers.call(asked, request, _refusal)
        except Refused as unanswered:
            if isinstance(unanswered.__cause__, RemotingError) and unanswered.__cause__.maybe_done:
                await pause(FOUND_S)
            raise
        if found is not None:
            return found
        if refused is not None:
            raise refused
        return _Outcome(commit, Ended(signed.half.message_id, Place()))

    async def _committed(self, signed: SignedHalf) -> _Outcome | None:
        """The message of a transaction that was committed before. Raises Refused if its own broker cannot be asked."""
        self.lookups += 1
        half, topic = signed.half, names.shown(signed.half.topic)
        since_ms = self._now_ms() - LOOKED_BACK_MS
        request = pulling.query_message(half.topic, half.message_id, _FOUND_MAX, since_ms, _LATEST_MS, unique=True)
        brokers = {signed.broker}
        if signed.from_check:
            brokers |= (await self._topics.route(topic)).queues.keys()
        answers = await self._brokers.of_each(sorted(brokers), lambda _: request, _messages, Asked("", topic))
        own = answers[signed.broker]
        if isinstance(own, Refused):
            raise own
        for broker, messages in answers.items():
            for message in [] if isinstance(messages, Refused) else messages:
                if message.topic == half.topic and _id(message) == half.message_id:
                    return _Outcome(True, Ended(half.message_id, await self._place(topic, broker, message)))
        return None

    async def _place(self, topic: str, broker: str, message: StoredMessage) -> Place:
        number = await self._layouts.number(await self._topics.get(topic), broker, message.queue_id)
        return Place(number, message.queue_offset)


def _messages(answer: Response) -> list[StoredMessage]:
    """Raises BrokerRefused, BadFormat."""
    if answer.code == ResponseCode.QUERY_NOT_FOUND:
        return []
    return stored.read_all(answer.expect().body)


def _id(message: StoredMessage) -> str:
    return properties.read(message.properties).get("UNIQ_KEY", "")


def _refusal(answer: Response) -> Refused | None:
    """Why a broker did not end it. Raises BrokerRefused for what is the same for all calls."""
    if answer.code == ResponseCode.ILLEGAL_OPERATION:
        return _not_found("is too old to be ended by it", "wait for the check: its answer ends the transaction")
    if answer.code == ResponseCode.SYSTEM_ERROR and any(words in answer.remark.lower() for words in _NOT_THERE):
        return _not_found("is not there any more", "if the broker gave it up, send the message again")
    succeeded(answer)
    return None


def _not_found(why: str, action: str) -> Refused:
    return Refused(
        "TRANSACTION_NOT_FOUND",
        f"the half message of this transaction id {why}",
        field="transaction_id",
        action=action,
    )


def _ended_otherwise(outcome: _Outcome) -> Refused:
    was = "committed" if outcome.committed else "rolled back"
    return Refused(
        "TRANSACTION_ENDED",
        f"the transaction of message {outcome.ended.message_id!r} was {was}",
        field="transaction_id",
        action="end a transaction once: find out which process ended it the other way",
    )


BY_ENDS = EndTransaction.awaited_by(Ends.end) | TopicsOf.awaited_by(Ends.topics_of)
