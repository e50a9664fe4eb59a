"""Leases and CheckPoints, broken."""

from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.contract.operations import Operation
from popmq_server.embedded.rules.delivery import lease, lease_history, pop
from popmq_server.embedded.rules.delivery.lease_history import Span
from popmq_server.embedded.rules.delivery.pick import Pick
from popmq_server.embedded.rules.sending import settle
from popmq_server.embedded.rules.topics import log
from popmq_server.embedded.state import leases
from popmq_server.embedded.store.checkpoint import BACKOFF, Run
from popmq_server.embedded.store.keys import DUE_KEY, NEVER, U64
from popmq_server.values.records import HeldNumbers
from tests.engine.invariants.breaking import Scene, acking, breaks, changing
from tests.engine.rig import HOUR, MINUTE, sealing
from tests.engine.traffic.traffic_fair import limited, of, opened, send
from tests.engine.traffic.traffic_fifo import fifo_pair, send_fifo

POP = ask.Pop("t", "g")
SEAL = sealing(1)
ACK_UP_TO = ask.AckUpTo("g", "o", 1, 1)


@breaks("lease_ends_later")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.send("a")
    return ask.Pop("t", "g", invisible_ms=-1)


@breaks("lease_inside_members")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b", "c")
    scene.change("due", lambda _: b"\x80")
    return acking(rows)


@breaks("lease_part_of_a_member")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b")
    scene.bug(leases, "set_part", lambda right, tx, ck, sub, part: right(tx, ck, sub + 1, part))
    return changing(rows[:1], "extend", delay_ms=HOUR)


@breaks("lease_parts_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.state.subs.load(scene.ck_id, 0)
    return acking(rows)


@breaks("lease_holds_something")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b", "c")
    scene.change("due", lambda _: b"\x07")
    return acking(rows)


@breaks("lease_holds_what_leaves")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b")
    scene.rig.ack(rows[:1])
    scene.bug(lease, "together", lambda right, tx, *_: ({scene.ck_id: 3}, {scene.ck_id: tx.state.ck[scene.ck_id]}))
    return acking(rows[1:])


@breaks("lease_deadline_of_owner")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b")
    ck_id = scene.ck_id
    scene.change("due", lambda _: None)
    scene.put("due", DUE_KEY.pack(NEVER, ck_id, 0), bytes(4 + U64.size))
    scene.state.leases._whole[ck_id] = NEVER
    return acking(rows)


@breaks("lease_has_checkpoint")
def _(scene: Scene) -> None:
    scene.leased("a")
    scene.empty("ck")
    scene.rig.skip(HOUR)


@breaks("lease_row_whole")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased(*"abcdefghi")
    scene.change("due", lambda _: b"\0")
    return acking(rows)


def released(scene: Scene) -> None:
    """Three messages that an owner's lease released."""
    scene.sealed("a", "b", "c")
    scene.rig.advance(MINUTE)


def owned(done: int = 0, torn: int = 0, released: int = 7, placed: int = 7) -> bytes:
    return bytes((done, torn, released, placed)) + U64.pack(1)


@breaks("released_not_done")
def _(scene: Scene) -> Operation[Any]:
    released(scene)
    scene.change("due", lambda _: owned(done=1), -1)
    return SEAL


@breaks("released_has_a_place")
def _(scene: Scene) -> Operation[Any]:
    released(scene)
    scene.change("due", lambda _: owned(placed=3), -1)
    return SEAL


@breaks("torn_no_longer_held")
def _(scene: Scene) -> Operation[Any]:
    released(scene)
    scene.change("due", lambda _: owned(torn=1), -1)
    return SEAL


@breaks("leased_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.state.held.load(scene.where, HeldNumbers())
    return acking(rows)


@breaks("owned_counted")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a")
    scene.state.held.load(scene.where, HeldNumbers())
    return ACK_UP_TO


@breaks("backoff_counted")
def _(scene: Scene) -> None:
    scene.rig.release(scene.leased("a"), delay_ms=MINUTE)
    scene.state.held.load(scene.where, HeldNumbers())
    scene.rig.skip(MINUTE)


@breaks("queue_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.clear(scene.state.in_flight)
    return acking(rows)


@breaks("client_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.clear(scene.state.clients)
    return acking(rows)


@breaks("chunk_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.clear(scene.state.pins)
    return acking(rows)


@breaks("group_chunk_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.clear(scene.state.group_pins)
    return acking(rows)


@breaks("fair_key_leases_counted")
def _(scene: Scene) -> Operation[Any]:
    opened(scene.rig, limited(5))
    send(scene.rig, of("acme", 1))
    rows = scene.rig.pop()
    scene.clear(scene.state.key_leases)
    return acking(rows)


@breaks("dead_blocked_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.state.dead_blocked.load((scene.ck_id, 0), 1)
    return acking(rows)


@breaks("session_has_its_leases")
def _(scene: Scene) -> Operation[Any]:
    scene.leased("a", client_id="c", session=True)
    scene.empty("ck")
    return ask.RenewSession("c")


@breaks("sorted_number_new")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.send("a")
    number = scene.state.counters[""].ck_id
    scene.state.session_leases.load(("c", number >> leases.SESSION_BITS), (number,))
    return ask.Pop("t", "g", client_id="c", session=True)


@breaks("sorted_number_known")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", client_id="c", session=True)
    scene.clear(scene.state.session_leases)
    return acking(rows)


@breaks("history_row_of_its_members")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.bug(lease_history, "_by_run", lambda right, ck, _: [Span(ck.runs[0], 0, 1, 0, 2)])
    return acking(rows)


# ── CheckPoints ──────────────────────────────────────────────────────────────────────────────────────────────────────


@breaks("checkpoint_kind")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(kind=7)
    return acking(rows)


@breaks("checkpoint_has_its_place")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(topic_id=0)
    return acking(rows)


@breaks("checkpoint_number_given")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.numbers(ck_id=1)
    return changing(rows, "extend", delay_ms=HOUR)


@breaks("checkpoint_has_members")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(runs=())
    return acking(rows)


@breaks("checkpoint_runs_filled")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(runs=(Run(0, 0, 1, 1), Run(0, 1, 0, 1)))
    return acking(rows)


@breaks("checkpoint_chunks_begin")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b")
    scene.checkpoint(chunks=((1, 0),))
    return acking(rows)


@breaks("checkpoint_chunks_inside")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a", "b")
    scene.checkpoint(chunks=((0, 0), (2, 0)))
    return acking(rows)


@breaks("checkpoint_of_owner_never_in_backoff")
def _(scene: Scene) -> Operation[Any]:
    scene.sealed("a", "b")
    scene.checkpoint(kind=BACKOFF)
    return SEAL


def made_wrong(scene: Scene, members: int = 0, **more: Any) -> None:
    """Lets pops make a CheckPoint with `members` too many, and with other fields."""

    def wrong(right: Any, tx: Any, where: Any, kind: int, count: int, *given: Any, **named: Any) -> Any:
        return right(tx, where, kind, count + members, *given, **named | more)

    scene.bug(leases, "new_checkpoint", wrong)


@breaks("checkpoint_counts_its_runs")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.send("a")
    made_wrong(scene, members=1)
    return POP


@breaks("checkpoint_message_groups")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1", "a2")
    made_wrong(scene, message_groups=(bytes(8),))
    return POP


@breaks("checkpoint_fair_keys")
def _(scene: Scene) -> Operation[Any]:
    opened(scene.rig, limited(5))
    send(scene.rig, of("acme", 2))
    made_wrong(scene, fair_keys=(bytes(8),))
    return POP


@breaks("attempts_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(runs=(Run(0, 0, 1, 0),))
    return changing(rows, "release", uncounted=True)


@breaks("attempts_counted")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.checkpoint(runs=(Run(0, 0, 1, 0),))
    return changing(rows, "release", uncounted=True, delay_ms=MINUTE)


@breaks("attempts_counted")
def _(scene: Scene) -> Operation[Any]:
    fifo_pair(scene.rig)
    send_fifo(scene.rig, "a1")
    rows = scene.rig.pop()
    scene.checkpoint(runs=(Run(0, 0, 1, 0),))
    return changing(rows, "release", uncounted=True)


@breaks("pop_takes_no_more_than_asked")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.send("a", "b")

    def wrong(right: Any, pick: Pick, *given: Any) -> None:
        right(pick, *given)
        pick.messages_max = 1

    scene.bug(pop, "choose", wrong)
    return POP


@breaks("pop_moves_on")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.pair()
    scene.rig.send("a")

    def wrong(right: Any, pick: Pick, *_: Any) -> int:
        pick.rejections_left = 0
        return -1

    scene.bug(Pick, "_take_units", wrong)
    return POP


@breaks("popped_message_in_a_chunk")
def _(scene: Scene) -> Operation[Any]:
    scene.rig.release(scene.leased("a"))
    scene.bug(log.Log, "chunk_of", lambda right, *_: -1)
    return POP


@breaks("settle_ends_each_delivery")
def _(scene: Scene) -> Operation[Any]:
    rows = scene.leased("a")
    scene.bug(settle, "_to_ack", lambda right, *_: [])
    return ask.Settle("g", (rows[0].handle,))
