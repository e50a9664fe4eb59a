"""Sends, delayed and half messages, stages, schedules and results, broken."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.operations import ResultsPiece
from popmq_server.embedded.rules.results.places import END, KEY, REACH, part_of
from popmq_server.embedded.rules.schedules import occurrences, schedules
from popmq_server.embedded.rules.sending import delay, release_delayed, stages
from popmq_server.embedded.rules.sending.transaction import DONE, DONE_KEEP_MS, HALF
from popmq_server.embedded.rules.topics.index import WIDE_NAME
from popmq_server.embedded.store.keys import DEDUP_VALUE, SCHED_KEY, TDONE_KEY
from popmq_server.values.outgoing import hash8
from tests.engine.invariants.breaking import Scene, breaks
from tests.engine.rig import HOUR, MINUTE, sending
from tests.engine.stages import committing, dropping, stage
from tests.engine.traffic.traffic_fifo import fifo_message, fifo_pair
from tests.engine.traffic.traffic_timing import ending, handle_of, later, send, timed_pair


@breaks("first_answer_is_whole")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    entries = fifo_message("a", "a1"), fifo_message("b", "b1")
    request = ask.Send("t", entries, "producer", 1, 100)
    scene.rig.do(request)
    scene.change("dedup", lambda raw: raw[: DEDUP_VALUE.size] + b'[[0, 0, "", "", false]]')
    return request


@breaks("first_answer_is_whole")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    request = ask.Settle("g", (rows[0].handle,), sends=(sending("b"),), producer_id="producer", request_number=1)
    scene.rig.do(request)
    scene.change("dedup", lambda raw: raw[: DEDUP_VALUE.size] + b"[]")
    return request


@breaks("first_answer_names_a_queue")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    scene.rig.send("a", producer="producer", number=1)
    head = DEDUP_VALUE.unpack(scene.rig.read("dedup")[0][1])
    scene.change("dedup", lambda _: DEDUP_VALUE.pack(*head[:2], 9, *head[3:]))
    return sending("a", producer="producer", number=1)


# ── Delayed messages ─────────────────────────────────────────────────────────────────────────────────────────────────


def delayed(scene: Scene) -> Operation[Any]:
    """A message that is due in an hour, and its recall."""
    timed_pair(scene.rig)
    (place,) = send(scene.rig, later("a", delay_ms=HOUR))
    return ask.Recall("t", handle_of(place))


@breaks("delayed_counted")
def _(scene: Scene) -> Operation[Any]:
    recall = delayed(scene)
    scene.count(scene.state.topic_stat, scene.topic, delayed=0)
    return recall


@breaks("delayed_number_given")
def _(scene: Scene) -> Operation[Any]:
    recall = delayed(scene)
    scene.numbers(sched_id=1)
    return recall


@breaks("delayed_is_stored")
def _(scene: Scene) -> Operation[Any]:
    delayed(scene)
    return scene.step(lambda tx: delay.remove(tx, SCHED_KEY.pack(1, 5, 1, scene.topic)))


@breaks("delayed_is_listed")
def _(scene: Scene) -> Operation[Any]:
    recall = delayed(scene)
    scene.empty("tsched")
    return recall


@breaks("delayed_never_early")
def _(scene: Scene) -> Operation[Any]:
    delayed(scene)
    row = release_delayed._DueMessage(*scene.rig.read("sched")[0])
    return scene.step(lambda tx: release_delayed._release(tx, [row]))


@breaks("sums_over_topics")
def _(scene: Scene) -> Operation[Any]:
    recall = delayed(scene)
    scene.clear(scene.state.unseen)
    return recall


# ── Half messages ────────────────────────────────────────────────────────────────────────────────────────────────────


def half(scene: Scene) -> Operation[Any]:
    """A half message, and its rollback."""
    timed_pair(scene.rig, "TRANSACTION")
    return ending(send(scene.rig, later("a", transaction=True)), False)


@breaks("half_counted")
def _(scene: Scene) -> Operation[Any]:
    end = half(scene)
    scene.count(scene.state.topic_stat, scene.topic, half=0)
    return end


@breaks("half_number_given")
def _(scene: Scene) -> Operation[Any]:
    end = half(scene)
    scene.numbers(txn_id=1)
    return end


@breaks("half_checks_bounded")
def _(scene: Scene) -> Operation[Any]:
    end = half(scene)
    fields = list(HALF.unpack(scene.rig.read("half")[0][1]))
    fields[3] = 99
    scene.change("half", lambda _: HALF.pack(*fields))
    return end


@breaks("half_has_its_next_check")
def _(scene: Scene) -> Operation[Any]:
    end = half(scene)
    scene.empty("hdue")
    return end


@breaks("transaction_ends_once")
def _(scene: Scene) -> Operation[Any]:
    end = half(scene)
    scene.put("tdone", TDONE_KEY.pack(scene.rig.now // DONE_KEEP_MS, 1), DONE.pack(True, 0, 0, 0, 0, 0))
    return end


# ── Stages ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@breaks("stage_number_given")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    scene.numbers(stage_id=1)
    return dropping("s")


@breaks("stage_number_given")
def _(scene: Scene) -> None:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    scene.rig.do(committing(("s", 1)))
    scene.numbers(stage_id=1)


@breaks("stage_leaves_once")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    row = stages.StageRow(1, scene.topic, 0, 1, 1, 0)
    return scene.step(lambda tx: stages._hand_over(tx, b"none", row, publish=True))


@breaks("stage_block_was_there")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    return scene.step(lambda tx: stages.remove_blocks(tx, b"none", 1, [b"none"]))


@breaks("published_stage_has_messages")
def _(scene: Scene) -> None:
    scene.rig.topic()
    stage(scene.rig, "s", "a")
    scene.rig.do(committing(("s", 1)))
    scene.empty("stage")


# ── Schedules ────────────────────────────────────────────────────────────────────────────────────────────────────────


@breaks("schedule_has_its_name")
def _(scene: Scene) -> Operation[Any]:
    scene.scheduled()
    scene.count(scene.state.schedules, "s", name="other")
    return ask.PauseSchedule("s", True)


@breaks("schedule_paused_has_no_time")
def _(scene: Scene) -> Operation[Any]:
    made = scene.scheduled()
    return scene.step(lambda tx: schedules.put(tx, made._replace(paused=True)))


@breaks("schedule_goes_on")
def _(scene: Scene) -> Operation[Any]:
    made = scene.scheduled()
    return scene.step(lambda tx: schedules.store_next(tx, made._replace(next_ms=made.next_ms - MINUTE)))


@breaks("schedule_sends_counted")
def _(scene: Scene) -> Operation[Any]:
    made = scene.scheduled()
    return scene.step(lambda tx: schedules.store_next(tx, made._replace(sent=-1)))


@breaks("schedule_never_early")
def _(scene: Scene) -> Operation[Any]:
    made = scene.scheduled()
    left = occurrences._Left(1, 1000)
    return scene.step(lambda tx: occurrences._send(tx, made, made.next_ms, left))


# ── Results ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def generation(scene: Scene, part: int, value: bytes) -> Operation[Any]:
    """A directory of results with one row, and a look-up of the result of message m."""
    scene.rig.group(results_keep_ms=HOUR)
    scene.put("res", KEY.pack(scene.state.ids[("t", "%RESULT%g")], 0, part), value)
    return ResultsPiece("g", ("m",), 1000)


@breaks("generation_has_its_end")
def _(scene: Scene) -> Operation[Any]:
    return generation(scene, 5, b"")


@breaks("generation_reaches_on")
def _(scene: Scene) -> Operation[Any]:
    return generation(scene, END, REACH.pack(0, 1))


@breaks("result_part_of_whole_entries")
def _(scene: Scene) -> Operation[Any]:
    look_up = generation(scene, END, REACH.pack(100, 1))
    generation_part(scene, bytes(15))
    return look_up


@breaks("result_within_its_generation")
def _(scene: Scene) -> Operation[Any]:
    look_up = generation(scene, END, REACH.pack(100, 1))
    generation_part(scene, WIDE_NAME.pack(hash8("m"), 100))
    return look_up


def generation_part(scene: Scene, value: bytes) -> None:
    """Adds the part with message m to the directory."""
    scene.put("res", KEY.pack(scene.state.ids[("t", "%RESULT%g")], 0, part_of(hash8("m"))), value)
