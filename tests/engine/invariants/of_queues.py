"""Positions, queues and the log, names and ids, broken."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.rules.retention import floors, retention
from popmq_server.embedded.rules.retention.floors import Climb
from popmq_server.embedded.rules.sending import send as sends
from popmq_server.embedded.rules.topics import chunk, readers, registry
from popmq_server.embedded.rules.topics.chunk import IDX_HEAD, IDX_RANGE
from popmq_server.embedded.rules.topics.topic import raise_begin
from popmq_server.embedded.state import leases, marks, topic_counts
from popmq_server.embedded.store.keys import CQ_ENTRY, CQ_KEY, TOPIC_AT, U64
from popmq_server.values.records import Lites, TopicStat
from tests.engine import lites
from tests.engine.invariants.breaking import Scene, acking, breaks, changing
from tests.engine.rig import HOUR, MINUTE, sending
from tests.engine.traffic.traffic_fair import of, opened, send

POP = ask.Pop("t", "g")


def unread(scene: Scene, *texts: str) -> None:
    scene.rig.pair()
    scene.rig.send(*texts)


@breaks("position_in_queue")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.state.poff.load((*scene.where, 0), 9)
    return POP


@breaks("position_in_queue")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    return scene.step(lambda tx: readers.pass_to(tx, (*scene.where, 0), 9))


@breaks("passed_is_a_sum")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.state.passed.load(scene.where, -5)
    return POP


@breaks("passed_within_the_ends")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.state.passed.load(scene.where, 9)
    return POP


@breaks("passed_over_in_queue")
def _(scene: Scene) -> Operation[Any]:
    opened(scene.rig)
    send(scene.rig, of("acme", 1))
    scene.bug(readers, "pass_over", lambda right, tx, where, *_: right(tx, where, [(0, 9)]))
    return POP


@breaks("floor_in_queue")
def _(scene: Scene) -> None:
    scene.rig.topic()
    scene.rig.send("a")
    scene.bug(floors, "_continued", lambda right, *_: Climb(0, 0, (9,)))
    scene.rig.skip(MINUTE)


@breaks("reader_enters_once")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    scene.rig.group()
    scene.state.topic_groups.load(scene.topic, (scene.group,))  # type: ignore[arg-type]
    return POP


@breaks("reader_has_counters")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.clear(scene.state.stat)
    return acking(rows)


@breaks("retry_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.release(scene.leased("a", "b"))
    scene.count(scene.state.stat, scene.where, retry=1)
    return POP


@breaks("lite_unread_counted")
def _(scene: Scene) -> Operation[Any]:
    lites.create(scene.rig)
    scene.rig.group()
    lites.pop(scene.rig, "ann")
    lites.send(scene.rig, "ann:1")
    scene.clear(scene.state.unread)
    return lites.popping("ann")


@breaks("marks_ascend")
def _(scene: Scene) -> None:
    unread(scene, "a")
    scene.rig.pop(invisible_ms=HOUR)
    scene.put("mark", TOPIC_AT.pack(scene.topic, 1), U64.pack(1 << 40))
    once = {scene.topic: (0, 0)}
    scene.bug(marks, "last", lambda right, kv, topic: once.pop(topic, None) or right(kv, topic))
    scene.rig.skip(MINUTE)


@breaks("mark_in_the_log")
def _(scene: Scene) -> None:
    scene.rig.topic(keep_ms=MINUTE)
    scene.rig.send("a")
    scene.put("mark", TOPIC_AT.pack(scene.topic, 1), U64.pack(1 << 40))
    scene.rig.skip(2 * MINUTE)


# ── Queues and chunks ────────────────────────────────────────────────────────────────────────────────────────────────


@breaks("message_in_a_queue")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    scene.bug(sends, "rotate", lambda right, tx, topic, *_: 0 if topic.name == "other" else 7)
    return ask.Send("t", (*sending("a").entries, *sending("b").entries))


@breaks("ends_are_a_sum")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a", "b")
    scene.clear(scene.state.total)
    return sending("c")


@breaks("queue_begins_before_its_end")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.state.queue_min.load((scene.topic, 0), 9)  # type: ignore[arg-type]
    return POP


@breaks("queue_begins_before_its_end")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    return scene.step(lambda tx: raise_begin(tx, (scene.topic, 0), 9))  # type: ignore[arg-type]


@breaks("queue_entries_follow")
def _(scene: Scene) -> Operation[Any]:
    """Met at the end of the transaction, where all messages of a topic are written."""
    unread(scene, "a", "b", "c")
    scene.bug(chunk, "staged", lambda right, queue, first, given: right(queue, first + (first == 4), given))
    return ask.Settle("g", sends=(sending("d"), sending("e")))


@breaks("queue_block_of_whole_entries")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a", "b")
    scene.change("cq", lambda raw: raw[:-1])
    return POP


@breaks("queue_blocks_apart")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a", "b")
    scene.put("cq", CQ_KEY.pack(scene.topic, 0, 1), scene.rig.read("cq")[0][1])
    scene.state.queue_max.load((scene.topic, 0), 3)  # type: ignore[arg-type]
    return POP


@breaks("leased_message_in_its_queue")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.empty("cq")
    return changing(rows, "release")


@breaks("numbers_ascend")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.bug(leases, "new_checkpoint", lambda right, tx, *_, **__: tx.next("ck_id", -1))
    return POP


@breaks("chunk_has_its_rows")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.empty("idx")
    return sending("b")


@breaks("chunk_has_the_reserved_bytes")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    whole = chunk.pieces

    def wrong(right: Any, requests: Any) -> Any:
        yield from ((piece, size + (piece[0].first == 1)) for piece, size in whole(requests))

    scene.bug(chunk, "pieces", wrong)
    return ask.Settle("g", sends=(sending("b"),))


@breaks("open_chunk_bytes")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.change("log", lambda raw: raw + b"x")
    return sending("b")


@breaks("open_chunk_entries")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a", "b")
    scene.change("cq", lambda raw: raw[: -CQ_ENTRY.size])
    return sending("c")


@breaks("open_chunk_continues_its_queues")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    size = IDX_HEAD.size
    scene.change("idx", lambda raw: raw[:size] + IDX_RANGE.pack(0, 0, 9) + raw[size + IDX_RANGE.size :])
    return sending("b")


@breaks("chunk_entries_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.release(scene.leased("a"))
    scene.empty("pin")
    return POP


@breaks("dropped_chunk_is_free")
def _(scene: Scene) -> None:
    scene.rig.topic(by_age=True, keep_ms=MINUTE)
    scene.rig.group()
    scene.leased("a")
    scene.bug(retention, "pinned", lambda right, *_: False)
    scene.rig.skip(2 * MINUTE)


@breaks("kept_record_in_its_chunk")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    position = U64.unpack(scene.rig.read("log")[0][0])[0]
    return scene.step(lambda tx: chunk.keep(tx, position, {position + (1 << 20): 10}))


@breaks("topic_bytes_counted")
def _(scene: Scene) -> None:
    scene.rig.topic(by_age=True, keep_ms=MINUTE)
    scene.rig.send("a")
    scene.state.topic_stat.load(scene.topic, TopicStat())
    scene.rig.skip(2 * MINUTE)


@breaks("abandoned_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    return scene.step(lambda tx: topic_counts.add(tx, scene.topic, abandoned=-1))


@breaks("lite_topics_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    return scene.step(lambda tx: topic_counts.add_lites(tx, scene.topic, -1, 0))


@breaks("lite_messages_counted")
def _(scene: Scene) -> Operation[Any]:
    lites.create(scene.rig)
    scene.rig.group()
    lites.send(scene.rig, "ann:1")
    parent = scene.state.ids[("t", "chat")]
    scene.state.lites.load(parent, Lites(1, -9))
    return lites.sending("ann:2")


@breaks("quota_counted_by_now")
def _(scene: Scene) -> Operation[Any]:
    unread(scene, "a")
    scene.count(scene.state.topics, scene.topic, pop_messages_per_s=5)
    scene.state.buckets.load((2, scene.topic, scene.group), (1000, scene.rig.now + HOUR))
    return POP


# ── Names and ids ────────────────────────────────────────────────────────────────────────────────────────────────────


@breaks("topic_has_its_name")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    scene.state.ids.load(("t", "t"), scene.state.ids[("t", "other")])
    return sending("a")


@breaks("group_has_its_name")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.rig.group("other")
    scene.state.ids.load(("g", "g"), scene.state.ids[("g", "other")])
    return acking(rows)


@breaks("lite_topic_has_its_name")
def _(scene: Scene) -> Operation[Any]:
    lites.create(scene.rig)
    lites.send(scene.rig, "ann:1", "bob:1")
    parent = scene.state.ids[("t", "chat")]
    bob = scene.state.lite_ids[parent, "bob"]  # type: ignore[index]
    scene.state.lite_ids.load((parent, "ann"), bob)  # type: ignore[arg-type]
    return lites.sending("ann:2")


@breaks("topic_id_new")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    scene.numbers(entity=scene.topic)
    return ask.CreateTopic("new", 1, False, HOUR)


@breaks("group_id_new")
def _(scene: Scene) -> Operation[Any]:
    made = scene.rig.group()
    return scene.step(lambda tx: registry.add_group(tx, made._replace(name="new")))


@breaks("topic_name_free")
def _(scene: Scene) -> Operation[Any]:
    made = scene.rig.topic()
    return scene.step(lambda tx: registry.add_topic(tx, made._replace(topic_id=99)))  # type: ignore[arg-type]


@breaks("group_name_free")
def _(scene: Scene) -> Operation[Any]:
    made = scene.rig.group()
    return scene.step(lambda tx: registry.add_group(tx, made._replace(group_id=99)))  # type: ignore[arg-type]


@breaks("lite_topic_name_free")
def _(scene: Scene) -> Operation[Any]:
    lites.create(scene.rig)
    lites.send(scene.rig, "ann:1")
    ann = next(topic for topic in scene.state.topics.values() if topic.parent_id)
    return scene.step(lambda tx: registry.add_topic(tx, ann._replace(topic_id=99)))  # type: ignore[arg-type]


@breaks("topic_has_queues")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    return ask.CreateTopic("new", 0, False, HOUR)


@breaks("queues_stay")
def _(scene: Scene) -> Operation[Any]:
    made = scene.rig.topic(queues=3)
    return scene.step(lambda tx: registry.change_topic(tx, made._replace(queues=2)))


@breaks("removed_is_gone")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    return scene.step(lambda tx: registry.removed(tx, scene.topic))
