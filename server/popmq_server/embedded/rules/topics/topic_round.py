"""A walk over all topics but lite topics, by name, in pieces: for jobs that visit all topics from time to time.

A list of all topics would take a command 20 ms with 10,000 of them. A round begins again after a restart.
"""

from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import U32
from popmq_server.values.records import Topic

#: Topics of one piece: some milliseconds.
LOOKS_MAX = 500


class TopicRound:
    """Remembers in `place` the name at which the next piece begins."""

    def __init__(self) -> None:
        self.place = b"t"

    def piece(self, tx: Tx) -> list[Topic]:
        """The next topics; `more` says whether others follow. A topic that is created meanwhile may be missed."""
        found, at, self.place = list[Topic](), self.place, b"t"
        for seen, (key, value) in enumerate(tx.kv.scan("name", b"t", at)):
            if seen == LOOKS_MAX:
                self.place = key
                break
            if (topic := tx.state.topics.get(U32.unpack(value)[0])) is not None:
                found.append(topic)
        return found

    @property
    def more(self) -> bool:
        """Whether the round is not complete."""
        return self.place != b"t"

    def back_to(self, topic: Topic) -> None:
        """Makes the next piece begin at a topic of this one."""
        self.place = b"t" + topic.name.encode()
