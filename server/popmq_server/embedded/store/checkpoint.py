"""CheckPoints: the messages that one Pop leased, and those of them that are not done yet.

    ck    ck_id → G, T, kind, owner, nonce, popped ms, runs, chunks,                                immutable
          FIFO: part, message groups; attempt id, client, reason
          a bit of `kind` marks a lease bound to its client's session (session_lease.py)
    due   due ms + ck_id + sub → done bitmap                                                        mutable

A batch from one queue is one CheckPoint of some 60 bytes for any size: its members are *runs* of consecutive offsets of
a queue, or single entries from the retry topic. Turns of fair keys take offsets that are not neighbours: a run is then
*sparse*, and has a bit for each offset between its first and its last one. Member i is bit i. `sub` 0 is the batch; a
member whose lease was changed alone is split off under sub = i + 1. When the last undone bit of the last sub is done,
the CheckPoint is removed.
"""

import bisect
import dataclasses
import functools
import itertools
import json
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.store.keys import NEVER, U16, U32, U64
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.errors import StartError
from popmq_server.values.ids import GroupId, TopicId
from popmq_server.values.records import RETRY_QUEUE

NORMAL, RETRY, FIFO, BACKOFF = 0, 1, 2, 3
KIND_NAMES = ("normal", "retry", "fifo", "backoff")
#: Flag stored with the kind: the lease is bound to its client's session.
SESSION = 0x80
#: The past of a message in a group is one number: how often it was snoozed [2], and when it was first popped, ms [6].
FIRST_POP, SNOOZED_ONCE = (1 << 48) - 1, 1 << 48

#: Cached texts of recently used CheckPoints: some 1 MiB.
TEXTS_MAX = 8192

HEAD = struct.Struct(">BIIBQQQHH")  # version, G, T, kind, owner id, nonce, popped ms, runs, chunks
#: The index of popped ms in HEAD.
HEAD_POPPED = 6
_PAIR = struct.Struct(">xII")  # G, T of HEAD
_RUN = struct.Struct(">HQHHQIQ")  # queue, first offset, count, attempts, position, size, past
_CHUNK = struct.Struct(">HQ")  # first member, chunk position
_RENEWED = struct.Struct(">HQ")  # renewals, time of the last one
#: Before the texts VERSION_FIFO has a part [4] and for each member the hash [8] of its message group; VERSION_FAIR for
#: each member the hash [8] of its fair key; VERSION_SPARSE for each run the length [2] of its bits and these, then
#: whether there are fair keys [1], and these.
VERSION, VERSION_FIFO, VERSION_FAIR, VERSION_SPARSE = 1, 2, 3, 4
#: The offsets from the first to the last of a sparse run are at most this many.
SPAN_MAX = 4096


#: One shared encoder: `json.dumps` with options creates one per call, which costs more than encoding these texts.
_write_json = json.JSONEncoder(ensure_ascii=False).encode
#: Bytes of head, run and chunk of a CheckPoint with one run and one chunk. The texts follow.
SINGLE_BYTES = HEAD.size + _RUN.size + _CHUNK.size
#: The fields for sums: version, G, T, kind, owner id; runs, chunks, queue; members of the run; size; chunk position.
SINGLE = struct.Struct(">BIIBQ16xHHH8xH10xI10xQ")
NAMED = struct.Struct(">xIIB72x")  # G, T, kind


class Run(NamedTuple):
    """Members of one queue with the same attempt number. `size` 0: the consume queue has the positions.

    Their offsets are `length` consecutive ones from `first` on, or, if the run is sparse, `first` + n for each bit n.
    """

    queue: int
    first: int
    length: int
    attempts: int
    position: int = 0
    size: int = 0
    past: int = 0  # 0: this is the first pop
    bits: int = 0  # 0: not sparse

    @property
    def span(self) -> int:
        """How many offsets there are from the first to the last."""
        return self.bits.bit_length() or self.length

    @property
    def every(self) -> int:
        """A bit for each of its offsets, from the first one on."""
        return self.bits or (1 << self.length) - 1

    @property
    def offsets(self) -> Sequence[int]:
        """The offset of each member, ascending."""
        first = self.first
        return [first + place for place in places_in(self.bits)] if self.bits else range(first, first + self.length)

    def offset(self, place: int) -> int:
        """The offset of a member."""
        return self.first + (places_in(self.bits)[place] if self.bits else place)

    def of_places(self, first: int, bits: int) -> "Run":
        """The same for the offset `first` + n of each bit n: sparse, unless they are consecutive."""
        low = (bits & -bits).bit_length() - 1
        bits >>= low
        return self._replace(first=first + low, length=bits.bit_count(), bits=bits if bits & (bits + 1) else 0)

    def places(self, inside: int) -> int:
        """Bits of members as bits of offsets from the first one on."""
        if not self.bits or not inside:
            return inside
        if inside == (1 << self.length) - 1:
            return self.bits
        places = places_in(self.bits)
        return sum(1 << places[member] for member in members_of(inside))


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckPoint:
    """The immutable part. `chunks`: (first member, chunk position) pairs, from which the pins of chunks follow.

    A batch of retries has a run, and perhaps a chunk, for each member, and each member may be acked alone. Methods on a
    few members must not walk all runs, or a batch of thousands costs millions of steps.
    """

    ck_id: int
    group_id: GroupId
    topic_id: TopicId
    kind: int
    nonce: int
    popped_ms: int
    runs: tuple[Run, ...]
    members: int
    chunks: tuple[tuple[int, int], ...]
    owner_id: int = 0  # 0 = none
    attempt_id: str = ""
    client: str = ""
    reason: str = ""
    message_groups: tuple[bytes, ...] = ()  # FIFO topics: the message group of each member, hashed
    part: int = 0  # of the token, in FIFO topics: its later chunks may have more of these message groups
    session: bool = False  # the lease is bound to its client's session
    fair_keys: tuple[bytes, ...] = ()  # where keys have a limit of leased messages: the fair key of each member, hashed

    @property
    def all_bits(self) -> int:
        """A bit for each member."""
        return (1 << self.members) - 1

    @functools.cached_property
    def _run_starts(self) -> list[int]:
        return [0, *itertools.accumulate(run.length for run in self.runs)]

    @functools.cached_property
    def _chunk_starts(self) -> list[int]:
        return [*(start for start, _ in self.chunks), self.members]

    def runs_with(self, bits: int) -> Iterator[tuple[Run, int, int]]:
        """(run, its first member, the part of `bits` in it, shifted to begin there) of each run that has any."""
        if len(self.runs) == 1 and bits:
            yield self.runs[0], 0, bits
            return
        for index, start, inside in _spans(self._run_starts, bits):
            yield self.runs[index], start, inside

    def attempts_of(self, member: int) -> int:
        """The attempt number of a member."""
        return self.runs[bisect.bisect_right(self._run_starts, member) - 1].attempts

    def snoozes_of(self, member: int) -> int:
        """How often a member was snoozed."""
        return self.runs[bisect.bisect_right(self._run_starts, member) - 1].past // SNOOZED_ONCE

    def chunk_of(self, member: int) -> int:
        """The position of a member's chunk."""
        return self.chunks[bisect.bisect_right(self._chunk_starts, member) - 1][1]

    def by_queue(self, bits: int) -> dict[int, int]:
        """For each queue, or RETRY_QUEUE, that has any of `bits` their number."""
        found: dict[int, int] = {}
        if bits == self.all_bits:  # of a whole batch: no part has to be looked for
            for run in self.runs:
                queue = RETRY_QUEUE if run.size else run.queue
                found[queue] = found.get(queue, 0) + run.length
            return found
        for run, _, inside in self.runs_with(bits):
            queue = RETRY_QUEUE if run.size else run.queue
            found[queue] = found.get(queue, 0) + inside.bit_count()
        return found

    def by_message_group(self, bits: int) -> dict[bytes, int]:
        """For each message group the number of members of `bits` that hold its lock; empty outside FIFO topics."""
        found: dict[bytes, int] = {}
        if self.message_groups:
            for member in members_of(bits):
                message_group = self.message_groups[member]
                found[message_group] = found.get(message_group, 0) + 1
        return found

    def by_fair_key(self, bits: int) -> dict[bytes, int]:
        """For each fair key the number of members of `bits`; empty where keys have no limit."""
        found: dict[bytes, int] = {}
        if self.fair_keys:
            for member in members_of(bits):
                key = self.fair_keys[member]
                found[key] = found.get(key, 0) + 1
        return found

    def by_chunk(self, bits: int) -> dict[int, int]:
        """For each chunk the number of members of `bits` in it."""
        if len(self.chunks) == 1 and bits:
            return {self.chunks[0][1]: bits.bit_count()}
        found: dict[int, int] = {}
        if bits == self.all_bits:
            for (start, chunk), stop in zip(self.chunks, self._chunk_starts[1:], strict=True):
                found[chunk] = found.get(chunk, 0) + stop - start
            return found
        for index, _, inside in _spans(self._chunk_starts, bits):
            chunk = self.chunks[index][1]
            found[chunk] = found.get(chunk, 0) + inside.bit_count()
        return found


def _spans(starts: list[int], bits: int) -> Iterator[tuple[int, int, int]]:
    """(index, start, bits inside) of each span from one start to the next that has any of `bits`."""
    base = 0
    while bits:
        index = bisect.bisect_right(starts, base + (bits & -bits).bit_length() - 1) - 1
        start, stop = starts[index], starts[index + 1]
        bits >>= start - base
        yield index, start, bits & (1 << stop - start) - 1
        bits >>= stop - start
        base = stop


class Lease(NamedTuple):
    """The mutable part: the deadline, and the undone members. The middle four fields are for owners (owner.py).

    Bits are those of the CheckPoint's members, also in a part that was split off. `why` shows the last two fields.
    """

    due_ms: int
    undone: int
    torn: int = 0
    released: int = 0  # undone members that are in the retry topic
    released_first: int = 0  # rseq of the lowest of `released_at`
    released_at: int = 0  # members that were released together, which gives the rseq of each
    renewals: int = 0
    renewed_ms: int = 0  # when it was last renewed; 0 = never

    def renewed(self, now_ms: int, due_ms: int) -> "Lease":
        """Returns the lease with a new deadline and one more renewal."""
        return self._replace(due_ms=due_ms, renewals=min(self.renewals + 1, 0xFFFF), renewed_ms=now_ms)


def members_of(bits: int) -> list[int]:
    """The indexes of the set bits, ascending.

    A single bit and a full prefix are the common cases. Otherwise it reads the digits as text, since shifting a number
    of thousands of bits once per bit is quadratic.
    """
    if bits & (bits + 1) == 0:
        return list(range(bits.bit_length()))
    if bits & (bits - 1) == 0:
        return [bits.bit_length() - 1]
    text = bin(bits)[:1:-1]
    return [index for index, bit in enumerate(text) if bit == "1"]


#: Remembered, since each member of a batch may be acked or released alone.
places_in = functools.lru_cache(maxsize=256)(members_of)


def heads(ck: CheckPoint, among: int) -> int:
    """The first member of each message group in `among`: the only one that counts as tried."""
    found, seen = 0, set()
    for member in members_of(among):
        if ck.message_groups[member] not in seen:
            seen.add(ck.message_groups[member])
            found |= 1 << member
    return found


def followers(ck: CheckPoint, among: int, failed: int) -> int:
    """The members of `among` that follow a member of `failed` in its message group."""
    first: dict[bytes, int] = {}
    for member in members_of(failed):
        first.setdefault(ck.message_groups[member], member)
    return sum(1 << member for member in members_of(among) if first.get(ck.message_groups[member], member) < member)


def exhausted(ck: CheckPoint, bits: int, max_attempts: int) -> int:
    """The members of `bits` that have no attempt left.

    A run has one number of attempts, since the same commits popped its members.
    """
    return sum(inside << start for run, start, inside in ck.runs_with(bits) if run.attempts >= max_attempts)


def encode(ck: CheckPoint) -> bytes:
    """head · runs · chunks · what the version adds · JSON of [attempt id, client, reason]."""
    texts, bits = texts_of(ck.attempt_id, ck.client, ck.reason), [run.bits for run in ck.runs]
    sparse = tuple(_encode_bits(each) for each in bits) if any(bits) else ()
    plain = VERSION_FIFO if ck.message_groups else VERSION_FAIR if ck.fair_keys else VERSION
    head = HEAD.pack(
        VERSION_SPARSE if sparse else plain,
        ck.group_id,
        ck.topic_id,
        ck.kind | SESSION if ck.session else ck.kind,
        ck.owner_id,
        ck.nonce,
        ck.popped_ms,
        len(ck.runs),
        len(ck.chunks),
    )
    runs, chunks = [_RUN.pack(*run[:-1]) for run in ck.runs], [_CHUNK.pack(*chunk) for chunk in ck.chunks]
    more = (U32.pack(ck.part), *ck.message_groups) if ck.message_groups else ck.fair_keys
    if sparse:
        more = (*sparse, bytes((bool(ck.fair_keys),)), *ck.fair_keys)
    return b"".join((head, *runs, *chunks, *more, texts))


def _encode_bits(bits: int) -> bytes:
    raw = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    return U16.pack(len(raw)) + raw


def decode(ck_id: int, raw: memoryview) -> CheckPoint:
    """The inverse of `encode`. Raises StartError for a version that this release does not know."""
    version, group_id, topic_id, kind, owner_id, nonce, popped_ms, run_count, chunk_count = HEAD.unpack_from(raw)
    if version not in (VERSION, VERSION_FIFO, VERSION_FAIR, VERSION_SPARSE):
        raise StartError(f"CheckPoint {ck_id} has version {version}, which this release does not know")
    stop = HEAD.size + run_count * _RUN.size
    end = stop + chunk_count * _CHUNK.size
    runs = tuple(Run(*fields) for fields in _RUN.iter_unpack(raw[HEAD.size : stop]))
    chunks = tuple(_CHUNK.iter_unpack(raw[stop:end]))
    members = sum(run.length for run in runs)
    _check_decoded(ck_id, (group_id, topic_id, kind & ~SESSION, owner_id), runs, chunks, members)
    message_groups, fair_keys, part, keyed = tuple[bytes, ...](), tuple[bytes, ...](), 0, 0
    if version == VERSION_FIFO:
        part, start = U32.unpack_from(raw, end)[0], end + U32.size
        end = start + 8 * members
        message_groups = tuple(bytes(raw[at : at + 8]) for at in range(start, end, 8))
    elif version == VERSION_SPARSE:
        runs, end = _with_bits(runs, raw, end)
        keyed, end = raw[end], end + 1
    if version == VERSION_FAIR or keyed:
        start, end = end, end + 8 * members
        fair_keys = tuple(bytes(raw[at : at + 8]) for at in range(start, end, 8))
    attempt_id, client, reason = json.loads(bytes(raw[end:]))
    return CheckPoint(
        ck_id=ck_id,
        group_id=group_id,
        topic_id=topic_id,
        kind=kind & ~SESSION,
        nonce=nonce,
        popped_ms=popped_ms,
        runs=runs,
        members=members,
        chunks=chunks,
        owner_id=owner_id,
        attempt_id=attempt_id,
        client=client,
        reason=reason,
        message_groups=message_groups,
        part=part,
        session=bool(kind & SESSION),
        fair_keys=fair_keys,
    )


def _with_bits(runs: tuple[Run, ...], raw: memoryview, at: int) -> tuple[tuple[Run, ...], int]:
    """The runs with their bits, which begin at `at`, and where these end."""
    found = []
    for run in runs:
        start = at + U16.size
        at = start + U16.unpack_from(raw, at)[0]
        found.append(run._replace(bits=int.from_bytes(raw[start:at], "little")))
    return tuple(found), at


def _check_decoded(
    ck_id: int, head: tuple[int, int, int, int], runs: Sequence[Run], chunks: Sequence[tuple[int, int]], members: int
) -> None:
    """Compares what was read with the invariants under which leases.new_checkpoint made it."""
    row, (group_id, topic_id, kind, owner_id) = ("ck", U64.pack(ck_id)), head
    if kind > BACKOFF:
        broken("checkpoint_kind", row, kind=kind)
    if not group_id or not topic_id:
        broken("checkpoint_has_its_place", row, group=group_id, topic=topic_id)
    if owner_id and kind == BACKOFF:
        broken("checkpoint_of_owner_never_in_backoff", row, owner=owner_id)
    if not runs:
        broken("checkpoint_has_members", row)
    for run in runs:
        if run.length < 1:
            broken("checkpoint_runs_filled", row, first=run.first)
    if not chunks or chunks[0][0]:
        broken("checkpoint_chunks_begin", row, chunks=chunks[:1])
    if chunks[-1][0] >= members:
        broken("checkpoint_chunks_inside", row, chunk=chunks[-1], members=members)


@functools.lru_cache(maxsize=TEXTS_MAX)
def texts_of(attempt_id: str, client: str, reason: str) -> bytes:
    """The encoded texts at the end of a CheckPoint. Cached: a pop needs them for its attempt key and to be stored, an
    ack to remove that key.
    """
    return _write_json([attempt_id, client, reason]).encode()


def clients_in(texts: list[bytes]) -> list[str]:
    """The clients in these texts.

    Without escapes no text contains a quote: each has the separator twice, so all are split together.
    """
    pieces = (together := b"".join(texts)).split(b'", "')
    if b"\\" in together or len(pieces) != 2 * len(texts) + 1:
        return [json.loads(text)[1] for text in texts]
    clients = pieces[1::2]
    names = {client: client.decode() for client in set(clients)}
    return [names[client] for client in clients]


def encode_lease(sub: int, lease: Lease, count: int) -> bytes:
    """The value of a `due` entry: done bits, and for an owner's CheckPoint torn and released ones.

    It has done bits, not undone ones, so a new lease is all zeros. Renewals follow the bits.
    """
    renewed = _RENEWED.pack(lease.renewals, lease.renewed_ms) if lease.renewals else b""
    if sub:
        return b"\0" + renewed
    width = (count + 7) // 8
    done = ((1 << count) - 1 ^ lease.undone).to_bytes(width, "little")
    if lease.due_ms != NEVER:
        return done + renewed
    bits = (lease.torn, lease.released, lease.released_at)
    return done + b"".join(value.to_bytes(width, "little") for value in bits) + U64.pack(lease.released_first)


def decode_lease(due_ms: int, sub: int, raw: memoryview, count: int) -> Lease:
    """The inverse of `encode_lease`; the deadline and the sub come from the key."""
    width = 1 if sub else (count + 7) // 8
    renewals, renewed_ms = _RENEWED.unpack_from(raw, width) if due_ms != NEVER and len(raw) > width else (0, 0)
    if sub:
        return Lease(due_ms, 1 << sub - 1, renewals=renewals, renewed_ms=renewed_ms)
    fields = [int.from_bytes(raw[index * width : (index + 1) * width], "little") for index in range(4)]
    undone = (1 << count) - 1 ^ fields[0]
    if due_ms != NEVER:
        return Lease(due_ms, undone, renewals=renewals, renewed_ms=renewed_ms)
    return Lease(due_ms, undone, fields[1], fields[2], U64.unpack_from(raw, 4 * width)[0], fields[3])


def pair_of(raw: memoryview) -> tuple[GroupId, TopicId]:
    """G, T of an encoded CheckPoint, without decoding the rest."""
    group_id, topic_id = _PAIR.unpack_from(raw)
    return GroupId(group_id), TopicId(topic_id)


def store_checkpoint(tx: Transaction, ck_id: int, _: CheckPoint | None, ck: CheckPoint | None) -> None:
    """Table `ck` → database `ck`."""
    if ck is None:
        tx.delete("ck", U64.pack(ck_id))
    else:
        tx.put("ck", U64.pack(ck_id), encode(ck))


def take_runs(ck: CheckPoint, bits: int, uncounted: bool, snoozed: int = 0) -> tuple[Run, ...]:
    """The members of `bits` as runs of their own. `snoozed`: SNOOZED_ONCE or 0, added to the past of each.

    Neighbours that leave together remain one run, so a released batch does not become one run per message. What leaves
    a sparse run is one run, too.
    """
    runs: list[Run] = []
    for run, _, inside in ck.runs_with(bits):
        left = run._replace(attempts=run.attempts - uncounted, past=(run.past or ck.popped_ms) + snoozed)
        if run.bits:
            runs.append(left.of_places(run.first, run.places(inside)))
            continue
        for first, length in _stretches(members_of(inside)):
            runs.append(left._replace(first=run.first + first, length=length))
    return tuple(runs)


def take_chunks(ck: CheckPoint, bits: int) -> tuple[tuple[int, int], ...]:
    """(member, chunk) pairs of the members of `bits`, renumbered from 0."""
    chunks: list[tuple[int, int]] = []
    for index, member in enumerate(members_of(bits)):
        chunk = ck.chunk_of(member)
        if not chunks or chunks[-1][1] != chunk:
            chunks.append((index, chunk))
    return tuple(chunks)


def _stretches(numbers: list[int]) -> Iterable[tuple[int, int]]:
    """(first, length) of each stretch of consecutive numbers."""
    start = 0
    for index in range(1, len(numbers) + 1):
        if index == len(numbers) or numbers[index] != numbers[index - 1] + 1:
            yield numbers[start], index - start
            start = index
