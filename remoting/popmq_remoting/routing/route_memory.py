"""What is known about routes, and when an answer that says less is believed.

A name server that was restarted answers for 20 to 30 s that no topic exists, and then routes of the brokers that have
registered again. So what is new is believed at once, and what is missing stays known until a second answer, 30 s later,
misses the same (`SHRINK_S`), or the broker itself says that it has no such topic.

    known ── answer with all of it, or more ──▶ the answer
      └───── answer that misses something ────▶ both together;  the same answer again 30 s later ──▶ the answer

Time is a parameter. Nothing is forgotten because name servers are silent.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from popmq_remoting.routing.route import BrokerAddresses, Route, TopicQueues

#: An answer that says less is believed after so long.
SHRINK_S = 30.0
#: How long a route is fresh: at least, and at random up to so much longer, so that not all are asked for together.
FRESH_S, SPREAD_S = 20.0, 10.0
#: The list of brokers is asked for again after so long: routes that a broker comes back to are renewed then.
LIST_S = 3.0
#: A topic that does not exist is asked for again after so long; a route that is in doubt is not asked for sooner.
ABSENT_S = DOUBT_S = 1.0
#: Topics that are remembered; beyond, the one that was asked for the longest ago is forgotten.
TOPICS_MAX = 20_000


@dataclass
class _Known:
    route: Route | None
    asked_s: float
    fresh_until_s: float
    #: When name servers answered last.
    learnt_s: float
    #: An answer that says less, and when it was first given.
    less: Route | None = None
    less_since_s: float | None = None
    #: Whether something showed that it may be wrong.
    doubted: bool = False


class RouteMemory:
    """Routes by topic. `draw`: a random number from 0 to 1."""

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._topics: dict[str, _Known] = {}

    def route(self, topic: str) -> Route | None:
        """What is known; None if nothing is, or that there is no such topic."""
        known = self._topics.get(topic)
        return known.route if known else None

    def is_fresh(self, topic: str, now_s: float) -> bool:
        """Whether the name servers need not be asked."""
        known = self._topics.get(topic)
        return known is not None and now_s < known.fresh_until_s

    def learnt_s(self, topic: str) -> float | None:
        """When name servers answered last; None: never."""
        known = self._topics.get(topic)
        return known.learnt_s if known else None

    def is_doubted(self, topic: str) -> bool:
        """Whether a new answer is worth waiting for."""
        known = self._topics.get(topic)
        return known is not None and known.doubted

    def put_off(self, topic: str, now_s: float) -> None:
        """No name server answered: what is known is used on, and they are asked again in a while."""
        known = self._topics.get(topic)
        if known is not None:
            known.asked_s = now_s
            known.fresh_until_s = now_s + DOUBT_S

    def learn(self, topic: str, answer: Route | None, now_s: float, fresh_s: float | None = None) -> Route | None:
        """What is known after an answer; None: the name servers know no such topic. `fresh_s`: instead of FRESH_S."""
        known = self._topics.pop(topic, None)
        if answer is None:
            fresh_s = ABSENT_S
        elif fresh_s is None:
            fresh_s = FRESH_S + SPREAD_S * self._draw()
        if known is None or known.route is None or (answer is not None and not misses(known.route, answer)):
            known = _Known(answer, now_s, now_s + fresh_s, now_s)
        else:
            known = _shrunk(known, answer, now_s, now_s + fresh_s)
        self._topics[topic] = known
        if len(self._topics) > TOPICS_MAX:
            del self._topics[next(iter(self._topics))]
        return known.route

    def lacks(self, topic: str, broker: str) -> None:
        """The broker itself has said that it does not have the topic."""
        known = self._topics.get(topic)
        if known is not None and known.route is not None:
            queues = {name: each for name, each in known.route.queues.items() if name != broker}
            known.route = replace(known.route, queues=queues) if queues else None
            self.doubt(topic)

    def renew(self, now_s: float) -> None:
        """A broker has come, or come back: all routes are asked for again, within a second and as they are used."""
        for known in self._topics.values():
            known.fresh_until_s = min(known.fresh_until_s, now_s + self._draw())

    def doubt(self, topic: str) -> None:
        """Something showed that the route may be wrong: it is asked for again, at most once a second."""
        known = self._topics.get(topic)
        if known is not None:
            known.doubted = True
            known.fresh_until_s = min(known.fresh_until_s, known.asked_s + DOUBT_S)

    def __len__(self) -> int:
        return len(self._topics)


def _shrunk(known: _Known, answer: Route | None, now_s: float, fresh_until_s: float) -> _Known:
    """What is known after an answer that misses something."""
    if known.less_since_s is None or known.less != answer:
        together = known.route if answer is None or known.route is None else joined(known.route, answer)
        return _Known(together, now_s, fresh_until_s, now_s, answer, now_s)
    if now_s - known.less_since_s >= SHRINK_S:
        return _Known(answer, now_s, fresh_until_s, now_s)
    return replace(known, asked_s=now_s, learnt_s=now_s, fresh_until_s=fresh_until_s, doubted=False)


def misses(known: Route, answer: Route) -> bool:
    """Whether the answer says less: a broker, an address by id, queues or a permission. Another address is not less."""
    for name, queues in known.queues.items():
        now = answer.queues.get(name)
        if now is None or now.read < queues.read or now.write < queues.write or queues.permission & ~now.permission:
            return True
    return any(
        name not in answer.brokers or broker.addresses.keys() - answer.brokers[name].addresses.keys()
        for name, broker in known.brokers.items()
    )


def joined(known: Route, answer: Route) -> Route:
    """Both together; of two addresses the answer's."""
    queues = dict(known.queues)
    for name, now in answer.queues.items():
        before = queues.get(name, now)
        queues[name] = TopicQueues(
            max(before.read, now.read), max(before.write, now.write), before.permission | now.permission
        )
    brokers = dict(known.brokers)
    for name, broker in answer.brokers.items():
        earlier = brokers[name].addresses if name in brokers else {}
        brokers[name] = BrokerAddresses(broker.cluster, {**earlier, **broker.addresses})
    return Route(queues, brokers, answer.is_static)
