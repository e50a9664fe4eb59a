"""Holders: the CheckPoints that hold messages at known places, found by a walk over all CheckPoints, piece by piece.

No table maps a message to the CheckPoints that hold it, and only `why` and `redrive` ask. A million leases take seconds
to visit, so a command visits those of one piece and answers with a HolderSearch; the caller repeats it with that:

    HolderSearch(places, at=0) ──step──▶ HolderSearch(places, at=ck_id, found) ──▶ … ──▶ is_done ──▶ the command acts

The last piece acts in the same transaction, and its view is consistent: a CheckPoint never changes, those that were
created meanwhile have higher ids, so the walk has reached them, and `held` leaves out those that ended.
"""

import bisect
from collections.abc import Iterator
from typing import NamedTuple

from popmq_server.embedded.operations import HolderSearch, MessagePlace
from popmq_server.embedded.state.checkpoints import DONE
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, Run
from popmq_server.values.ids import GroupId, TopicId

#: Runs and message groups of CheckPoints that one piece decodes: some milliseconds. One CheckPoint is always decoded.
DECODED_MAX = 2000


class HeldMessage(NamedTuple):
    """A message as a member of an existing CheckPoint, done or not."""

    ck: CheckPoint
    run: Run
    bit: int


def is_done(walk: HolderSearch) -> bool:
    """Whether the walk has visited all CheckPoints."""
    return walk.at == DONE


def step(tx: Tx, walk: HolderSearch) -> HolderSearch:
    """Visits the CheckPoints of one piece."""
    offsets, found, left = _offsets(walk), list(walk.found), DECODED_MAX
    topics = {topic_id for topic_id, _ in offsets}

    def wanted(group_id: GroupId, topic_id: TopicId) -> bool:
        return topic_id in topics and walk.group_id in (0, group_id)

    some, after = tx.state.ck.of(wanted, walk.at)
    for ck_id in some:
        if left <= 0:
            return walk._replace(at=ck_id, found=tuple(found))
        if (ck := tx.state.ck.get(ck_id)) is not None:
            left -= len(ck.runs) + len(ck.message_groups) + 1
            found += [ck_id] if any(_members(ck, offsets)) else []
    return walk._replace(at=after, found=tuple(found))


def held(tx: Tx, walk: HolderSearch) -> Iterator[tuple[MessagePlace, HeldMessage]]:
    """Each message at a place of the walk, in each CheckPoint that holds it and still exists."""
    offsets = _offsets(walk)
    for ck_id in walk.found:
        if (ck := tx.state.ck.get(ck_id)) is not None:
            yield from _members(ck, offsets)


def _offsets(walk: HolderSearch) -> dict[tuple[int, int], list[int]]:
    """The wanted offsets by topic and queue, ascending."""
    found: dict[tuple[int, int], list[int]] = {}
    for topic_id, queue, offset in sorted(walk.places):
        found.setdefault((topic_id, queue), []).append(offset)
    return found


def _members(ck: CheckPoint, wanted: dict[tuple[int, int], list[int]]) -> Iterator[tuple[MessagePlace, HeldMessage]]:
    """The members of a CheckPoint at wanted places."""
    start = 0
    for run in ck.runs:
        offsets = wanted.get((ck.topic_id, run.queue), ())
        for offset in offsets[bisect.bisect_left(offsets, run.first) :] if offsets else ():
            if (place := offset - run.first) >= run.span:
                break
            if run.bits:
                if not run.bits >> place & 1:
                    continue
                place = (run.bits & (1 << place) - 1).bit_count()
            yield (ck.topic_id, run.queue, offset), HeldMessage(ck, run, 1 << start + place)
        start += run.length
