"""Sends to LITE topics: each message goes to its lite topic, which is created if it does not exist.

Send to a LITE topic ──▶ send.py, as for any topic, with LitePlacing instead of Placing
"""

from popmq_server.contract.commands import Place
from popmq_server.embedded.rules.lite import lite_topics
from popmq_server.embedded.rules.sending.placing import NO_EXTRA, Placing
from popmq_server.embedded.rules.topics.topic import enqueue
from popmq_server.errors import Refused
from popmq_server.values.outgoing import Outgoing


class LitePlacing(Placing):
    """Places messages in lite topics, which have one queue each."""

    def _refusal(self, message: Outgoing) -> Refused | None:
        """Creates the lite topic of a message if needed; the refusal if the quota of lite topics is used up."""
        refused = super()._refusal(message)
        if refused is not None:
            return refused
        lite_topic = lite_topics.ensure(self._tx, self._topic, (message.extra or NO_EXTRA).lite_topic)
        return lite_topic if isinstance(lite_topic, Refused) else None

    def make_visible(self, messages: list[tuple[int, Outgoing]]) -> list[Place]:
        """As in Placing: stores the messages of each lite topic together. The lite topics exist by now."""
        names: dict[str, list[int]] = {}
        for rank, (_, message) in enumerate(messages):
            names.setdefault((message.extra or NO_EXTRA).lite_topic, []).append(rank)
        places = [Place()] * len(messages)
        for name, ranks in names.items():
            child = lite_topics.find(self._tx, self._topic, name)
            assert child is not None
            first = enqueue(self._tx, child, 0, tuple(messages[rank][1] for rank in ranks))
            for step, rank in enumerate(ranks):
                places[rank] = Place(0, first + step)
        return places
