"""Retries, message groups, dead letters and fair keys, broken."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.rules.delivery import deadletter, fifo, retry
from popmq_server.embedded.rules.delivery.fair.fair_pick import FairPick
from popmq_server.embedded.rules.delivery.fair.waiting import LABEL, WaitingKeys
from popmq_server.embedded.rules.delivery.fifo import Waiting
from popmq_server.embedded.rules.delivery.fifo_pick import FifoPick
from popmq_server.embedded.state import ready_groups, topic_counts
from popmq_server.embedded.store.keys import FWAIT_KEY, FWAIT_VALUE, RQ_KEY
from popmq_server.values.ids import MessageGroup
from popmq_server.values.outgoing import hash8
from popmq_server.values.records import FairKeys
from tests.engine import lites
from tests.engine.invariants.breaking import Scene, breaks, changing
from tests.engine.rig import MINUTE
from tests.engine.traffic.traffic_fair import of, opened, send
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo

POP = ask.Pop("t", "g")
ACK_UP_TO = ask.AckUpTo("g", "o", 1, 1)


def ann(scene: Scene) -> MessageGroup:
    """The message group a of topic t."""
    return (*scene.where, hash8("a"))


def returned(scene: Scene) -> None:
    """a1 waits in its message group, after a release."""
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1")
    scene.rig.release(scene.rig.pop())


@breaks("waiting_counted")
def _(scene: Scene) -> Operation[Any]:
    returned(scene)
    scene.count(scene.state.stat, scene.where, waiting=0)
    return POP


@breaks("lite_returns_counted")
def _(scene: Scene) -> Operation[Any]:
    lites.create(scene.rig)
    scene.rig.group()
    lites.send(scene.rig, "ann:1")
    scene.rig.release(lites.pop(scene.rig, "ann"))
    above = (scene.group, scene.state.ids[("t", "chat")])
    scene.count(scene.state.stat, above, waiting=0)
    return lites.popping("ann")


@breaks("retry_entry_was_there")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    key = RQ_KEY.pack(*scene.where, 99)
    return scene.step(lambda tx: retry.remove(tx, scene.where, [(key, 0)]))


@breaks("retry_number_given")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.release(scene.leased("a"))
    scene.numbers(rseq=1)
    return POP


@breaks("released_is_in_the_retry_topic")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a", "b")
    scene.rig.advance(MINUTE)
    scene.empty("rq")
    return ACK_UP_TO


@breaks("released_waits_in_its_message_group")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1", "a2")
    scene.rig.attach()
    scene.rig.seal(1)
    scene.rig.advance(MINUTE)
    scene.empty("fwait")
    return ACK_UP_TO


@breaks("message_waits_once")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1")
    rows = scene.rig.pop()
    scene.put("fwait", FWAIT_KEY.pack(*ann(scene), 0), FWAIT_VALUE.pack(*bytes(8)))
    return changing(rows, "release")


@breaks("waiting_entry_was_there")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    entry = Waiting(FWAIT_KEY.pack(*ann(scene), 9), 0, 0, 0, 0, 0, 0, 0, 0, "")
    return scene.step(lambda tx: fifo.remove(tx, scene.where, entry))


@breaks("message_group_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1")
    rows = scene.rig.pop()
    scene.clear(scene.state.locks)
    return ask.Ack("g", (rows[0].handle,))


@breaks("message_group_waiting_counted")
def _(scene: Scene) -> Operation[Any]:
    returned(scene)
    scene.clear(scene.state.waiting)
    return POP


@breaks("message_group_tied_counted")
def _(scene: Scene) -> Operation[Any]:
    returned(scene)
    return scene.step(lambda tx: ready_groups.untie(tx.state, ann(scene)))


@breaks("message_group_has_one_reader")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1")
    scene.state.locks.load(ann(scene), (1, 7, 0))
    scene.bug(FifoPick, "_is_free", lambda right, *_: True)
    return POP


@breaks("message_group_was_free")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1", "a2")
    scene.rig.pop(1)
    scene.bug(FifoPick, "_is_free", lambda right, *_: True)
    return POP


@breaks("stop_was_noted")
def _(scene: Scene) -> Operation[Any]:
    returned(scene)
    return scene.step(lambda tx: ready_groups._note_stop(tx.state, ann(scene), (0, "why"), -1))


@breaks("stopped_groups_counted")
def _(scene: Scene) -> Operation[Any]:
    returned(scene)
    return scene.step(lambda tx: ready_groups._sort_stopped(tx.state, ann(scene), False))


# ── Dead letters ─────────────────────────────────────────────────────────────────────────────────────────────────────


def dead(scene: Scene) -> int:
    """The id of the dead-letter topic, with one message."""
    scene.rig.reject(scene.leased("a"))
    return scene.state.ids[("t", "%DLQ%g")]


@breaks("redriven_in_its_queue")
def _(scene: Scene) -> Operation[Any]:
    topic_id = dead(scene)
    return scene.step(lambda tx: deadletter.mark_gone(tx, topic_id, 0, [9]))


@breaks("redriven_once")
def _(scene: Scene) -> Operation[Any]:
    topic_id = dead(scene)
    return scene.step(lambda tx: deadletter.mark_gone(tx, topic_id, 0, [0, 0]))


@breaks("redriven_counted")
def _(scene: Scene) -> Operation[Any]:
    topic_id = dead(scene)
    return scene.step(lambda tx: topic_counts.add(tx, topic_id, redriven=-1))


# ── Fair keys ────────────────────────────────────────────────────────────────────────────────────────────────────────


def fair(scene: Scene, separator: str = "") -> Operation[Any]:
    """A message of the fair key acme/eu, which a Pop takes."""
    opened(scene.rig, FairKeys("property", "tenant", separator))
    send(scene.rig, of("acme/eu", 1))
    return POP


@breaks("fair_key_waiting_counted")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, keys: WaitingKeys, taken: dict[int, int], *given: Any) -> None:
        for slot in taken:
            keys.count[slot] = 0
        right(keys, taken, *given)

    scene.bug(WaitingKeys, "take_plain", wrong)
    return fair(scene)


@breaks("fair_messages_counted")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, keys: WaitingKeys, *given: Any) -> None:
        keys.messages = 0
        right(keys, *given)

    scene.bug(WaitingKeys, "take_plain", wrong)
    return fair(scene)


@breaks("fair_label_counted")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, keys: WaitingKeys, slot: int) -> None:
        if keys.kind[keys.parent[slot]] == LABEL:
            keys.count[keys.parent[slot]] = 0
        right(keys, slot)

    scene.bug(WaitingKeys, "drop", wrong)
    return fair(scene, "/")


@breaks("fair_key_has_its_slot")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, keys: WaitingKeys, slot: int) -> None:
        keys._slots.clear()
        right(keys, slot)

    scene.bug(WaitingKeys, "drop", wrong)
    return fair(scene)


@breaks("fair_place_in_its_queue")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, pick: FairPick, queue: int, index: Any, chosen: Any, offsets: list[int], *given: Any) -> None:
        right(pick, queue, index, chosen, [offset + 99 for offset in offsets], *given)

    scene.bug(FairPick, "_take_of_queue", wrong)
    return fair(scene)


@breaks("fair_turn_of_each_message")
def _(scene: Scene) -> Operation[Any]:
    def wrong(right: Any, pick: FairPick, *given: Any) -> Any:
        gone = right(pick, *given)
        pick._order.append(0)
        return gone

    scene.bug(FairPick, "_take_places", wrong)
    return fair(scene)
