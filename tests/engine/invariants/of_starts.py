"""Stores that a start refuses: one for each invariant that a repair mends."""

import json
from collections.abc import Callable

from popmq_server.embedded.store.checkpoint import BACKOFF, Run
from popmq_server.embedded.store.keys import DUE_KEY, NEVER, QUEUE_ENDS, TAKEN_KEY, U32, U64
from popmq_server.embedded.store.row_formats import numbers
from popmq_server.values.records import Counters, Stat, TopicStat
from tests.engine import lites
from tests.engine.invariants.breaking import Scene
from tests.engine.invariants.of_leases import owned, released
from tests.engine.stages import committing, stage

Damage = Callable[[Scene], None]
STARTS: list[tuple[str, Damage]] = []


def refused(name: str) -> Callable[[Damage], Damage]:
    """Adds a store that a start refuses."""

    def add(damage: Damage) -> Damage:
        STARTS.append((name, damage))
        return damage

    return add


def at(scene: Scene, name: str, sub: int = 0) -> int:
    """Which row of `due` is that of a lease, not of an owner."""
    return [DUE_KEY.unpack(key)[2] == sub for key, _ in scene.rig.read(name)].index(True)


def due(scene: Scene, value: bytes) -> None:
    scene.change("due", lambda _: value, at(scene, "due"))


def number(scene: Scene, field: str, value: int) -> None:
    """Sets one of the numbers that are given next, in the store."""
    place = 8 * Counters._fields.index(field)

    def changed(raw: bytes) -> bytes:
        return raw[:place] + U64.pack(value) + raw[place + 8 :]

    scene.put("meta", b"counters", changed(dict(scene.rig.read("meta"))[b"counters"]))


def counts(scene: Scene, table: str, row: int = 0, **fields: int) -> None:
    """Sets counters of a group in a topic, or of a topic, in the store."""
    write, read = numbers(Stat if table == "stat" else TopicStat)
    scene.change(table, lambda raw: write(read(raw)._replace(**fields)), row)


def setting(scene: Scene, table: str, **fields: object) -> None:
    scene.change(table, lambda raw: json.dumps(json.loads(raw) | fields).encode())


@refused("lease_inside_members")
def _(scene: Scene) -> None:
    scene.leased("a", "b", "c")
    due(scene, b"\x80")


@refused("lease_holds_something")
def _(scene: Scene) -> None:
    scene.leased("a", "b", "c")
    due(scene, b"\x07")


@refused("lease_row_whole")
def _(scene: Scene) -> None:
    scene.leased(*"abcdefghi")
    due(scene, b"\0")


@refused("lease_deadline_of_owner")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    ck_id = scene.ck_id
    scene.empty("due")
    scene.put("due", DUE_KEY.pack(NEVER, ck_id, 0), bytes(12))


@refused("lease_deadline_of_owner")
def _(scene: Scene) -> None:
    scene.sealed("a", "b")
    ck_id = scene.ck_id
    scene.change("due", lambda _: None, at(scene, "due"))
    scene.put("due", DUE_KEY.pack(scene.rig.now, ck_id, 0), b"\0")


@refused("lease_has_checkpoint")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.empty("ck")


@refused("checkpoint_has_lease")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.empty("due")


@refused("checkpoint_has_lease")
def _(scene: Scene) -> None:
    scene.sealed("a", "b")
    scene.change("due", lambda _: None, at(scene, "due"))


@refused("released_not_done")
def _(scene: Scene) -> None:
    released(scene)
    due(scene, owned(done=1))


@refused("released_has_a_place")
def _(scene: Scene) -> None:
    released(scene)
    due(scene, owned(placed=3))


@refused("torn_no_longer_held")
def _(scene: Scene) -> None:
    released(scene)
    due(scene, owned(torn=1))


@refused("checkpoint_kind")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.checkpoint(kind=7)


@refused("checkpoint_has_its_place")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.checkpoint(topic_id=0)


@refused("checkpoint_has_members")
def _(scene: Scene) -> None:
    scene.leased("a", "b", client_id="a client with a name so long that the row is no shorter than others")
    scene.checkpoint(runs=())


@refused("checkpoint_runs_filled")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.checkpoint(runs=(Run(0, 0, 1, 1), Run(0, 1, 0, 1)))


@refused("checkpoint_chunks_begin")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.checkpoint(chunks=((1, 0),))


@refused("checkpoint_chunks_inside")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.checkpoint(chunks=((0, 0), (2, 0)))


@refused("checkpoint_of_owner_never_in_backoff")
def _(scene: Scene) -> None:
    scene.sealed("a", "b")
    scene.checkpoint(kind=BACKOFF)


@refused("checkpoint_number_given")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    number(scene, "ck_id", 1)


@refused("log_ends_before_next_position")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    number(scene, "position", 1)


@refused("ids_given")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    number(scene, "entity", 1)


@refused("position_in_queue")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.change("poff", lambda _: U64.pack(9))


@refused("passed_ahead_of_position")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.put("taken", TAKEN_KEY.pack(*scene.where, 0, 0), b"\xff")


@refused("queue_begins_before_its_end")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.put("queue", U32.pack(scene.topic) + bytes(2), QUEUE_ENDS.pack(9, 2))


@refused("retry_counted")
def _(scene: Scene) -> None:
    scene.rig.release(scene.leased("a", "b"))
    counts(scene, "stat", retry=-1)


@refused("waiting_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "stat", waiting=-1)


@refused("finished_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "stat", dead=-1)


@refused("lite_returns_counted")
def _(scene: Scene) -> None:
    lites.create(scene.rig)
    scene.rig.group()
    lites.send(scene.rig, "ann:1")
    scene.rig.release(lites.pop(scene.rig, "ann"))
    counts(scene, "stat", waiting=-1)


@refused("topic_bytes_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "tstat", -1, bytes=-1)


@refused("delayed_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "tstat", -1, delayed=-1)


@refused("half_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "tstat", -1, half=-1)


@refused("redriven_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "tstat", -1, redriven=-1)


@refused("abandoned_counted")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    counts(scene, "tstat", -1, abandoned=-1)


@refused("topic_has_its_name")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.put("name", b"tt", U32.pack(99))


@refused("group_has_its_name")
def _(scene: Scene) -> None:
    scene.leased("a", "b")
    scene.put("name", b"gother", U32.pack(scene.group))


@refused("token_has_its_checkpoint")
def _(scene: Scene) -> None:
    scene.sealed("a", "b")
    scene.empty("ck")
    scene.change("due", lambda _: None, at(scene, "due"))


@refused("published_stage_has_messages")
def _(scene: Scene) -> None:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    scene.rig.do(committing(("s", 1)))
    scene.empty("stage")


@refused("schedule_has_its_name")
def _(scene: Scene) -> None:
    scene.scheduled()
    setting(scene, "cron", name="other")


@refused("schedule_paused_has_no_time")
def _(scene: Scene) -> None:
    scene.scheduled()
    setting(scene, "cron", paused=True)
