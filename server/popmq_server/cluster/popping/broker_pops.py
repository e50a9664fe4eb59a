"""Requests that pop: calls of one turn that want the same of a broker share them, 32 messages each.

    64 callers that want a message each ─▶ two requests ─▶ the messages in the order of the callers

Their leases are those that the callers would have got alone. Ordered pops are never shared: a batch of a locked queue
belongs to one consumer. What comes for a caller who has gone meanwhile is given back.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from popmq_remoting.errors import DeadlineOver
from popmq_remoting.requests import popping
from popmq_remoting.requests.popping import MESSAGES_MAX, BrokerPop, PopOutcome
from popmq_remoting.routing.broker_clock import UNLEARNT_MS
from popmq_server.cluster import names
from popmq_server.cluster.brokers import CALL_S
from popmq_server.cluster.collecting import Collector, Share, packed
from popmq_server.cluster.popping.sessions import given_back
from popmq_server.cluster.refusals import Asked, refusal
from popmq_server.cluster.shared import Shared
from popmq_server.cluster.signed.handles import SignedDelivery
from popmq_server.errors import unavailable

_CLOCKS_MIN = UNLEARNT_MS // 60_000


class PopKey(NamedTuple):
    """What a pop wants of a broker. `queue_id` -1: all queues. `topic`, `group`: as PopMQ calls them."""

    broker: str
    queue_id: int
    topic: str
    group: str
    invisible_ms: int
    filter_type: str | None
    expression: str | None
    ordered: bool
    attempt_id: str | None


class _Wish(NamedTuple):
    """What one caller wants: at most MESSAGES_MAX."""

    key: PopKey
    messages_max: int


class BrokerPops:
    """Pops of one broker each."""

    def __init__(self, shared: Shared) -> None:
        self._brokers, self._background, self._now_ms = shared.brokers, shared.background, shared.now_ms
        self._collected = Collector[_Wish, PopOutcome](self._planned, self._give_back)

    async def pop(self, key: PopKey, messages_max: int) -> PopOutcome:
        """At most MESSAGES_MAX. Raises Refused."""
        if key.ordered:
            return await self._asked(key, messages_max)
        try:
            return await self._collected.ask(_Wish(key, messages_max), self._brokers.until_s())
        except DeadlineOver as late:
            raise refusal(late, Asked(key.broker, key.topic, key.group, "filter")) from None

    def _planned(self, turn: Sequence[_Wish]) -> Iterator[Share[PopOutcome]]:
        by_key: dict[PopKey, list[int]] = {}
        for place, wish in enumerate(turn):
            by_key.setdefault(wish.key, []).append(place)
        for key, places in by_key.items():
            for members in packed(places, lambda place: turn[place].messages_max, MESSAGES_MAX):
                wanted = [turn[member].messages_max for member in members]
                yield Share(members, self._together(key, wanted))

    async def _together(self, key: PopKey, wanted: Sequence[int]) -> list[PopOutcome]:
        """The outcomes of callers that want so many messages each."""
        rows, pop_ms, rest, _ = await self._asked(key, sum(wanted))
        outcomes = []
        for messages_max in wanted:
            outcomes.append(PopOutcome(rows[:messages_max], pop_ms, rest))
            rows = rows[messages_max:]
        return outcomes

    async def _asked(self, key: PopKey, messages_max: int) -> PopOutcome:
        """If a clock has been set since it was learnt, it is learnt anew. Raises Refused."""
        outcome = await self._asked_once(key, messages_max)
        if outcome.is_too_old:
            self._brokers.cluster.clock(key.broker).forget()
            outcome = await self._asked_once(key, messages_max)
        if outcome.is_too_old:
            refused = unavailable(f"the clock of broker {key.broker} is more than {_CLOCKS_MIN} minutes ahead of ours")
            refused.action = "the operator sets the clocks of the gateway and of the broker, best by NTP"
            raise refused
        return outcome

    async def _asked_once(self, key: PopKey, messages_max: int) -> PopOutcome:
        clock, asked_ms = self._brokers.cluster.clock(key.broker), self._now_ms()
        request = popping.pop(
            BrokerPop(
                names.broker_topic(key.topic),
                names.broker_group(key.group),
                key.invisible_ms,
                clock.pop_born_ms(),
                messages_max=messages_max,
                queue_id=key.queue_id,
                ordered=key.ordered,
                filter_type=key.filter_type,
                expression=key.expression,
                attempt_id=key.attempt_id,
                broker=key.broker,
            )
        )
        asked = Asked(key.broker, key.topic, key.group, "filter")
        outcome = await self._brokers.call(asked, request, lambda answer: popping.popped(answer, key.broker))
        if outcome.pop_ms:
            clock.learn(outcome.pop_ms, asked_ms)
        return outcome

    def _give_back(self, wish: _Wish, outcome: PopOutcome) -> None:
        topic = names.broker_topic(wish.key.topic)
        self.release((SignedDelivery(topic, each.handle) for each in outcome.rows), wish.key.group)

    def release(self, deliveries: Iterator[SignedDelivery], group: str) -> None:
        """Ends leases that nobody will use, in the background."""
        for delivery in deliveries:
            self._background.start(
                "the release of a message that nobody has taken", given_back(self._brokers, delivery, group)
            )

    async def close(self) -> None:
        """Waits for the requests that are under way, at most as long as a call takes."""
        await self._collected.close(CALL_S)
