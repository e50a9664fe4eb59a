"""CheckPoints: what one Pop leased, and what of it is not done yet.

    ck    ck_id → G, T, kind, owner, nonce, popped ms, attempt id or token hash, client, runs       immutable
    due   due ms + ck_id + sub → done bitmap                                                        what moves

A batch is one CheckPoint of some 60 bytes whatever its size: its members are *runs* of consecutive offsets of a queue,
or single entries taken from the retry topic. Member i is bit i. `sub` 0 is the batch; a member whose lease was changed
alone is split off under sub = i + 1. With the last undone bit of the last sub the CheckPoint is gone.
"""

import json
import struct
from typing import NamedTuple

from popmq_server.storage.keys import DUE_KEY, NEVER, U64
from popmq_server.storage.lmdb import Transaction

NORMAL, RETRY, FIFO, BACKOFF = 0, 1, 2, 3
KIND_NAMES = ("normal", "retry", "fifo", "backoff")

MEMBERS_MAX = 4096

_HEAD = struct.Struct(">BIIBQQQHH")  # version, G, T, kind, owner id, nonce, popped ms, runs, chunks
_RUN = struct.Struct(">HQHHQIQ")  # queue, first offset, count, attempts, position, size, first pop ms
_CHUNK = struct.Struct(">HQ")  # first member, chunk position
_VERSION = 1


class Run(NamedTuple):
    """Members with consecutive offsets and one number of attempts. `size` 0: positions are in the consume queue."""

    queue: int
    first: int
    length: int
    attempts: int
    position: int = 0
    size: int = 0
    first_pop_ms: int = 0


class CheckPoint(NamedTuple):
    """The immutable half. `chunks`: (first member, chunk position) pairs, which retention's pins follow from."""

    ck_id: int
    group_id: int
    topic_id: int
    kind: int
    owner_id: int  # 0 = none
    nonce: int
    popped_ms: int
    attempt_id: str
    client: str
    reason: str
    runs: tuple[Run, ...]
    members: int
    chunks: tuple[tuple[int, int], ...]

    @property
    def all_bits(self) -> int:
        """A bit for each member."""
        return (1 << self.members) - 1

    def run_of(self, member: int) -> tuple[Run, int]:
        """The run that holds a member, and its place in it."""
        for run in self.runs:
            if member < run.length:
                return run, member
            member -= run.length
        raise IndexError(member)

    def pinned(self, bits: int) -> dict[int, int]:
        """How many members of `bits` lie in each chunk.

        Most batches lie in one chunk.
        """
        found: dict[int, int] = {}
        for place, (start, chunk) in enumerate(self.chunks):
            stop = self.chunks[place + 1][0] if place + 1 < len(self.chunks) else self.members
            members = (bits >> start & (1 << stop - start) - 1).bit_count()
            if members:
                found[chunk] = found.get(chunk, 0) + members
        return found


class Lease(NamedTuple):
    """The half that moves: until when, and who is not done. The last four are for owners (owner.py).

    Bits are those of the CheckPoint's members, also in a part that was split off.
    """

    due_ms: int
    undone: int
    torn: int = 0
    released: int = 0  # undone members that are in the retry topic
    released_first: int = 0  # rseq of the lowest of `released_at`
    released_at: int = 0  # what was released together, so that the rseq of each member follows


def chunk_of_member(ck: CheckPoint, member: int) -> int:
    """The chunk that a member lies in."""
    return max((start, chunk) for start, chunk in ck.chunks if start <= member)[1]


def members_of(bits: int) -> list[int]:
    """The numbers of the bits that are set, ascending.

    A full prefix, the common case, is a range; else the digits are read as text, since shifting a number of
    thousands of bits once for each bit is quadratic.
    """
    if bits & (bits + 1) == 0:
        return list(range(bits.bit_length()))
    text = bin(bits)[:1:-1]
    return [place for place, bit in enumerate(text) if bit == "1"]


def encode(ck: CheckPoint) -> bytes:
    """head · runs · chunks · JSON of [attempt id, client, reason]."""
    texts = json.dumps([ck.attempt_id, ck.client, ck.reason], ensure_ascii=False).encode()
    head = _HEAD.pack(
        _VERSION,
        ck.group_id,
        ck.topic_id,
        ck.kind,
        ck.owner_id,
        ck.nonce,
        ck.popped_ms,
        len(ck.runs),
        len(ck.chunks),
    )
    runs, chunks = (_RUN.pack(*run) for run in ck.runs), (_CHUNK.pack(*chunk) for chunk in ck.chunks)
    return b"".join((head, *runs, *chunks, texts))


def decode(ck_id: int, raw: memoryview) -> CheckPoint:
    """Back again."""
    _, group_id, topic_id, kind, owner_id, nonce, popped_ms, run_count, chunk_count = _HEAD.unpack_from(raw)
    stop = _HEAD.size + run_count * _RUN.size
    end = stop + chunk_count * _CHUNK.size
    runs = tuple(Run(*fields) for fields in _RUN.iter_unpack(raw[_HEAD.size : stop]))
    chunks = tuple(_CHUNK.iter_unpack(raw[stop:end]))
    attempt_id, client, reason = json.loads(bytes(raw[end:]))
    members = sum(run.length for run in runs)
    return CheckPoint(
        ck_id, group_id, topic_id, kind, owner_id, nonce, popped_ms, attempt_id, client, reason, runs, members, chunks
    )


def encode_lease(sub: int, lease: Lease, count: int) -> bytes:
    """The value of a `due` entry: done bits, and for an owner's CheckPoint torn and released ones.

    Done bits, not undone ones: a new lease is all zeros.
    """
    if sub:
        return b"\0"
    width = (count + 7) // 8
    done = ((1 << count) - 1 ^ lease.undone).to_bytes(width, "little")
    if lease.due_ms != NEVER:
        return done
    bits = (lease.torn, lease.released, lease.released_at)
    return done + b"".join(value.to_bytes(width, "little") for value in bits) + U64.pack(lease.released_first)


def decode_lease(due_ms: int, sub: int, raw: memoryview, count: int) -> Lease:
    """Back from a `due` entry: its key says until when, its value who is done."""
    if sub:
        return Lease(due_ms, 1 << sub - 1)
    width = (count + 7) // 8
    fields = [int.from_bytes(raw[place * width : (place + 1) * width], "little") for place in range(4)]
    undone = (1 << count) - 1 ^ fields[0]
    if due_ms != NEVER:
        return Lease(due_ms, undone)
    return Lease(due_ms, undone, fields[1], fields[2], U64.unpack_from(raw, 4 * width)[0], fields[3])


def store_checkpoint(tx: Transaction, ck_id: int, _: CheckPoint | None, ck: CheckPoint | None) -> None:
    """Table `ck` → database `ck`."""
    if ck is None:
        tx.delete("ck", U64.pack(ck_id))
    else:
        tx.put("ck", U64.pack(ck_id), encode(ck))


def due_key(due_ms: int, ck_id: int, sub: int) -> bytes:
    return DUE_KEY.pack(due_ms, ck_id, sub)
