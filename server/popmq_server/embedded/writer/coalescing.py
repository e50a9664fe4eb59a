"""Runs like commands of one commit batch as one, so the fixed cost of a Send, a Pop or an Ack is paid once.

    Send · Send · Send, to one topic, of one message each   ──▶  one append for each queue
    Pop · Pop · Pop, equal, of one message each             ──▶  one Pop of three, one CheckPoint, a message for each
    Ack · Ack · Ack, of one group, in a row                 ──▶  one look-up and one change for each CheckPoint
    Settle · Settle, in a row, acks with one message each   ──▶  both of the first and the last line

Callers see no difference: a message gets the queue and the offset that it would get alone, each has its own handle, and
a change of one member of a CheckPoint does not affect the others. These commands are not combined: sends that need
more than an append (send.send_all) or repeat a request number, pops with a token, an attempt id or a session, pops of
FIFO and LITE topics, commands while the store has no room for the combined one, acks with results, and acks of which
one is refused. A Pop that gets no message from the combined one runs again by itself.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import cast

from popmq_server.contract.commands import Ack, Pop, Send, Settle
from popmq_server.contract.commands.messages import Entries
from popmq_server.contract.operations import Operation
from popmq_server.embedded.invariants.broken import BrokenInvariant
from popmq_server.embedded.rules.delivery import lease, pop
from popmq_server.embedded.rules.sending import dedup, send, settle
from popmq_server.embedded.rules.topics import registry
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.writer.batch import ANSWER_BYTES_MAX, Batch, Poisoned, answer_bytes, must_wait, refusal_of
from popmq_server.values.leased import Leased

#: At most this many commands are run as one: the members of one CheckPoint.
TOGETHER_MAX = 256


class Alike:
    """The commands of a batch that may be run as one, and those of them that have run."""

    def __init__(self, batch: Batch, order: Sequence[int]) -> None:
        self._batch = batch
        self._done: set[int] = set()
        #: For each index in the batch the list of the commands like it, in the order of the batch.
        self._lists: dict[int, list[int]] = {}
        self._find(order)

    def _find(self, order: Sequence[int]) -> None:
        pops: dict[Hashable, list[int]] = {}
        acks: tuple[Hashable, list[int]] = None, []
        sends: dict[str, tuple[frozenset[str], list[int]]] = {}
        for index in order:
            command = self._batch.commands[index]
            if command.__class__ is not Send and (key := _acks_only(command)) is not None:
                if acks[0] != key:
                    acks = key, []
                self._lists[index] = acks[1]
            else:
                acks = None, []  # a command between two acks may change the result of the second
                if isinstance(command, Send) and len(command.entries) == 1:
                    if command.topic not in sends or sends[command.topic][0] != command.types:
                        sends[command.topic] = command.types, []
                    self._lists[index] = sends[command.topic][1]
                elif isinstance(command, Pop) and _is_plain(command):
                    self._lists[index] = pops.setdefault(command, [])
                else:
                    sends.clear()  # its messages come before those of later sends
                    continue
            self._lists[index].append(index)

    def has_run(self, tx: Tx, index: int) -> bool:
        """Whether a command has its result; runs it together with the commands like it if possible.

        Raises Poisoned without an index if that failed after it wrote: the batch then runs again, one by one.
        """
        if index in self._done:
            return True
        if index not in self._lists or must_wait(command := self._batch.commands[index], self._batch.answering):
            return False
        alike = self._lists[index]
        if not alike or alike[0] != index:  # one of a group that could not run as one: those after it run later
            return False
        now = alike[:TOGETHER_MAX]
        del alike[:TOGETHER_MAX]
        if len(now) < 2:
            return False
        before = tx.dirty
        try:
            self._done |= _RUN[type(command)](tx, self._batch, now)
        except Exception as error:  # each command then runs by itself, meets the error again, and answers or reports it
            if tx.dirty != before or isinstance(error, BrokenInvariant):
                raise Poisoned(None) from None
        return index in self._done


def _acks_only(command: Operation[object]) -> Hashable:
    """What an Ack, or a Settle that acks and sends one message, has in common with those that may run with it."""
    if isinstance(command, Ack) and command.handles and not command.results:
        return command.group, type(command.handles[0])
    if not isinstance(command, Settle) or command.changes or command.results or not command.handles:
        return None
    plain = len(command.sends) == 1 and command.messages == 1
    return (command.group, command.sends[0].topic, command.sends[0].types) if plain else None


def _is_plain(command: Pop) -> bool:
    """Whether a pop asks for one message, and for nothing that belongs to its caller alone."""
    own = command.token is not None or command.attempt_id or command.session or command.lite is not None
    return command.max_messages == 1 and not own


def _whole(sends: list[Send]) -> Send:
    """One send of all messages of these sends to one topic."""
    entries = cast(Entries, tuple([send.entries[0] for send in sends]))
    bytes_ = sum([send.bytes for send in sends])
    return replace(sends[0], entries=entries, bytes=bytes_, producer_id="", request_number=0)


def _send(tx: Tx, batch: Batch, indexes: list[int]) -> set[int]:
    """Runs sends of one message as one, if all of them are plain and none repeats a request number."""
    commands = cast(list[Send], [batch.commands[index] for index in indexes])
    keys, whole = [dedup.key_of(command) for command in commands], _whole(commands)
    topic = registry.topic(tx, whole.topic)
    if topic is None or refusal_of(tx, whole) or not dedup.all_new(tx, keys):
        return set()
    sent = send.send_all(tx, whole)
    for index, key, answer in zip(indexes, keys, sent, strict=False):
        if key:
            dedup.remember(tx, key, topic, 1, answer)
        batch.results[index] = answer
    return set(indexes[: len(sent)])


def _pop(tx: Tx, batch: Batch, indexes: list[int]) -> set[int]:
    """Runs pops as one; returns the indexes that got their answers: the others found nothing."""
    command = cast(Pop, batch.commands[indexes[0]])
    bytes_max = min(command.max_bytes, ANSWER_BYTES_MAX - batch.answering)
    command = replace(command, max_messages=len(indexes), max_bytes=bytes_max)
    topic = registry.topic(tx, command.topic)
    if topic is None or topic.type in ("FIFO", "LITE") or refusal_of(tx, command):
        return set()
    leased: Leased = pop.pop(tx, command)
    batch.answering += answer_bytes(leased)
    if not leased.rows:
        batch.results[indexes[0]] = leased
        return {indexes[0]}
    served = indexes[: len(leased.rows)]
    for index, row in zip(served, leased.rows, strict=True):
        batch.results[index] = leased._replace(rows=[row])
    return set(served)


def _ack(tx: Tx, batch: Batch, indexes: list[int]) -> set[int]:
    """Runs acks as one, if all of them are good."""
    acked = lease.ack_all(tx, cast(list[Ack], [batch.commands[index] for index in indexes]))
    if acked is None:
        return set()
    for index, answer in zip(indexes, acked, strict=True):
        batch.results[index] = answer
    return set(indexes)


def _settle(tx: Tx, batch: Batch, indexes: list[int]) -> set[int]:
    """Runs Settles of one message as one, if all of them are good and plain."""
    commands = cast(list[Settle], [batch.commands[index] for index in indexes])
    whole = _whole([command.sends[0] for command in commands])
    settled = None if refusal_of(tx, whole) else settle.settle_all(tx, commands, whole)
    if settled is None:
        return set()
    for index, answer in zip(indexes, settled, strict=True):
        batch.results[index] = answer
    return set(indexes)


_RUN = {Send: _send, Pop: _pop, Ack: _ack, Settle: _settle}
