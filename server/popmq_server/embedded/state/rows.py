"""The rows of the stored tables, with which `State` declares them.

A row of an older store may lack fields or numbers; the readers fill them in.
"""

from collections.abc import Iterator

from popmq_server.embedded.store.keys import (
    POFF_KEY,
    STAT_KEY,
    TAKEN_KEY,
    U32,
    U64,
)
from popmq_server.embedded.store.lmdb import Transaction
from popmq_server.embedded.store.row_formats import (
    ID,
    PAIR,
    Fields,
    KeyFormat,
    RowFormat,
    RowReader,
    json_rows,
    numbers,
    packed,
    packed_keys,
    u32,
    u64,
    without_defaults,
)
from popmq_server.embedded.store.table import StoreChange
from popmq_server.values.ids import GroupQueue, GroupTopic, Taken
from popmq_server.values.records import (
    IN_FLIGHT_MAX,
    SUBSCRIPTION_EXPIRY_MS,
    Counters,
    FairKeys,
    Group,
    KeyLimits,
    Owner,
    Schedule,
    Stat,
    Subscription,
    SweepWork,
    Token,
    Topic,
    TopicStat,
    Void,
)

_COUNTERS = b"counters"
#: Key prefix of the names of lite topics, before the id of their parent.
LITE_NAME = b"l"
#: Defaults for fields that a group of an older store lacks.
_OLDER_GROUP: Fields = {
    "fifo": False,
    "in_flight_max": IN_FLIGHT_MAX,
    "stop_on_failure": False,
    "lite_exclusive": False,
    "consume_enable": True,
    "subscription_expiry_ms": SUBSCRIPTION_EXPIRY_MS,
}


def _text(raw: bytes | memoryview) -> str:
    return bytes(raw).decode()


#: Names by kind. Those of lite topics have their parent's id, so they are not found once that is deleted.
_NAME = KeyFormat(lambda key: (key[0] + key[1]).encode(), lambda raw: (chr(raw[0]), raw[1:].decode()))
_LITE = KeyFormat(
    lambda key: LITE_NAME + U32.pack(key[0]) + key[1].encode(), lambda raw: (u32(raw[1:5]), raw[5:].decode())
)
LITE_NAMES = packed_keys("name", _LITE, U32.pack, u32, LITE_NAME)
_TOKEN = KeyFormat(lambda key: STAT_KEY.pack(key[0], key[1]) + key[2], lambda raw: (*STAT_KEY.unpack(raw[:8]), raw[8:]))
_OWNER = KeyFormat(lambda key: U32.pack(key[0]) + key[1], lambda raw: (u32(raw[:4]), raw[4:]))


def _read_names(reader: RowReader) -> Iterator[tuple[tuple[str, str], int]]:
    for kind in (b"g", b"t"):
        for raw, value in reader.scan("name", kind):
            yield _NAME.unpack(raw), u32(value)


NAMES = RowFormat(packed_keys("name", _NAME, U32.pack, u32).store, _read_names)


def ends(store: StoreChange) -> RowFormat:
    """The format of the ends of queues. `State` loads them itself, by topic."""
    return RowFormat(store, lambda _: iter(()))


def _group(_: int, fields: Fields) -> Group:
    fair = fields.get("fair_keys")
    if fair is not None:
        known = {name: value for name, value in fair.items() if name in FairKeys._fields}
        fair = FairKeys(**known | {"exceptions": tuple(KeyLimits(*limits) for limits in fair["exceptions"])})
    return Group(**_OLDER_GROUP | fields | {"delays_ms": tuple(fields["delays_ms"]), "fair_keys": fair})


def _group_fields(group: Group) -> Fields:
    """The fields of a group; without fair keys the same as in older stores."""
    fields = group._asdict()
    if group.fair_keys is None:
        del fields["fair_keys"]
    else:
        fields["fair_keys"] = group.fair_keys._asdict()
    return fields


def _store_taken(tx: Transaction, where: GroupQueue, before: Taken | None, now: Taken | None) -> None:
    """Writes the blocks that changed."""
    before, now = before or {}, now or {}
    for block in before.keys() | now.keys():
        if (bits := now.get(block, 0)) == before.get(block, 0):
            continue
        key = TAKEN_KEY.pack(*where, block)
        if bits:
            tx.put("taken", key, bits.to_bytes((bits.bit_length() + 7) // 8, "little"))
        else:
            tx.delete("taken", key)


def _read_taken(reader: RowReader) -> Iterator[tuple[GroupQueue, Taken]]:
    found = dict[GroupQueue, Taken]()
    for raw, value in reader.scan("taken"):
        group_id, topic_id, queue, block = TAKEN_KEY.unpack(raw)
        found.setdefault((group_id, topic_id, queue), {})[block] = int.from_bytes(value, "little")
    yield from found.items()


def _sweep(_: GroupTopic, fields: Fields) -> SweepWork:
    voids = (Void(ck_id, rseq, *map(tuple, offsets)) for ck_id, rseq, *offsets in fields["voids"])
    return SweepWork(**fields | {"voids": tuple(voids)})


def _owner_fields(owner: Owner) -> Fields:
    """The fields of an owner without its hash, which its key has."""
    return owner._asdict() | {"key": ""}


def _owner(key: tuple[int, bytes], fields: Fields) -> Owner:
    return Owner(**fields | {"key": key[1], "topics": tuple(fields.get("topics", ()))})


OWNERS = json_rows("own", Owner, _OWNER, _owner_fields, _owner)


def _store_counters(tx: Transaction, _: str, __: object, value: Counters) -> None:
    tx.put("meta", _COUNTERS, b"".join(map(U64.pack, value)))


def _read_counters(reader: RowReader) -> Iterator[tuple[str, Counters]]:
    """One row. Numbers of an older store that it lacks begin at 1.

    Those of stages are looked up too: an older release that had the store open meanwhile dropped their counter.
    """
    raw = reader.tx.get("meta", _COUNTERS)
    older = Counters() if raw is None else numbers(Counters)[1](raw)
    last = reader.tx.last("stage"), reader.tx.last("publish")
    stage_id = max((U64.unpack_from(found[0])[0] + 1 for found in last if found), default=1)
    numbered = older._replace(sched_id=older.sched_id or 1, txn_id=older.txn_id or 1)
    yield "", numbered._replace(stage_id=max(older.stage_id, stage_id))


TOPICS = json_rows("topic", Topic, ID, without_defaults)
GROUPS = json_rows("group", Group, ID, _group_fields, _group)
PURGES = packed_keys("purge", ID, str.encode, _text)
POSITIONS = packed("poff", POFF_KEY, U64.pack, u64)
TAKEN = RowFormat(_store_taken, _read_taken)
STATS = packed("stat", STAT_KEY, *numbers(Stat))
SUBSCRIPTIONS = json_rows("sub", Subscription, PAIR)
SWEEPS = json_rows("sweep", SweepWork, PAIR, made=_sweep)
TOPIC_STATS = packed_keys("tstat", ID, *numbers(TopicStat))
TOKENS = json_rows("tok", Token, _TOKEN)
SCHEDULES = json_rows("cron", Schedule, KeyFormat(str.encode, lambda raw: bytes(raw).decode()))
COUNTERS = RowFormat(_store_counters, _read_counters)
