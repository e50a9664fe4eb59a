"""Runs equal pops, and acks in a row, of one commit batch as one, so the fixed cost of a Pop or an Ack is paid once.

    Pop · Pop · Pop, equal, of one message each   ──▶  one Pop of three, one CheckPoint, a message of it for each
    Ack · Ack · Ack, of one group, in a row       ──▶  one look-up and one change for each CheckPoint

Callers see no difference: each message has its own handle, and a change of one member of a CheckPoint does not affect
the others. These commands are not combined: pops with a token, an attempt id or a session, pops of FIFO and LITE
topics, pops while the store has no room for the combined one, and acks of which one is refused. A Pop that gets no
message from the combined one runs again by itself.
"""

from collections.abc import Hashable, Sequence

from popmq_server.commands import Ack, Pop
from popmq_server.delivery import lease, pop
from popmq_server.model.leased import Leased
from popmq_server.state.tx import Tx
from popmq_server.writer import answers
from popmq_server.writer.batch import Batch, Poisoned, refusal_of

#: At most this many pops or acks are run as one: the members of one CheckPoint.
TOGETHER_MAX = 256


class Alike:
    """The commands of a batch that may be run as one, and those of them that have run."""

    def __init__(self, group: Batch, order: Sequence[int]) -> None:
        self._group = group
        self._done: set[int] = set()
        #: For each place in the batch the list of the commands like it, in the order of the batch.
        self._lists: dict[int, list[int]] = {}
        self._find(order)

    def _find(self, order: Sequence[int]) -> None:
        pops: dict[Hashable, list[int]] = {}
        acks: tuple[Hashable, list[int]] = None, []
        for place in order:
            command = self._group.commands[place]
            if isinstance(command, Ack) and command.handles:
                key = command.group, type(command.handles[0])
                if acks[0] != key:
                    acks = key, []
                self._lists[place] = acks[1]
            else:
                acks = None, []  # a command between two acks may change the result of the second
                if not isinstance(command, Pop) or not _is_plain(command):
                    continue
                self._lists[place] = pops.setdefault(command, [])
            self._lists[place].append(place)

    def has_run(self, tx: Tx, place: int) -> bool:
        """Whether a command has its result; runs it together with the commands like it if possible.

        Raises Poisoned without a place if that failed after it wrote: the batch then runs again, one by one.
        """
        if place in self._done:
            return True
        if place not in self._lists or answers.must_wait(command := self._group.commands[place], tx.answered):
            return False
        alike = self._lists[place]
        now = alike[:TOGETHER_MAX]
        del alike[:TOGETHER_MAX]
        if len(now) < 2:
            return False
        before = tx.dirty
        try:
            self._done |= _pop(tx, self._group, now) if isinstance(command, Pop) else _ack(tx, self._group, now)
        except Exception:  # each command then runs by itself, meets the error again, and answers or reports it
            if tx.dirty != before:
                raise Poisoned(None) from None
        return place in self._done


def _is_plain(command: Pop) -> bool:
    """Whether a pop asks for one message, and for nothing that belongs to its caller alone."""
    own = command.token is not None or command.attempt_id or command.session or command.lite is not None
    return command.max_messages == 1 and not own


def _pop(tx: Tx, group: Batch, places: list[int]) -> set[int]:
    """Runs pops as one; returns the places that got their answers: the others found nothing."""
    command: Pop = group.commands[places[0]]
    bytes_max = min(command.max_bytes, answers.ANSWER_BYTES_MAX - tx.answered)
    command = command._replace(max_messages=len(places), max_bytes=bytes_max)
    topic = tx.topic(command.topic)
    if topic is None or topic.type in ("FIFO", "LITE") or refusal_of(tx, command):
        return set()
    leased: Leased = pop.pop(tx, command)
    tx.answered += answers.bytes_of(leased)
    if not leased.rows:
        group.results[places[0]] = leased
        return {places[0]}
    served = places[: len(leased.rows)]
    for place, row in zip(served, leased.rows, strict=True):
        group.results[place] = leased._replace(rows=[row])
    return set(served)


def _ack(tx: Tx, group: Batch, places: list[int]) -> set[int]:
    """Runs acks as one, if all of them are good."""
    acked = lease.ack_all(tx, [group.commands[place] for place in places])
    if acked is None:
        return set()
    for place, answer in zip(places, acked, strict=True):
        group.results[place] = answer
    return set(places)
