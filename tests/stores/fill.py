"""The contents of a kept store. Runs with the code of the kept release, so it uses only what that release has.

    python fill.py FOLDER NUMBER      with PYTHONPATH at the release (make.py)
    python fill.py FOLDER sparse      only `sparse`

`first` is what format 1 knew, `second` what format 2 added, `aged` and `third` what came until format 4: imports stand
in functions, since the release of format 1 has none of them. Time moves by some hours, so that something is in every
state at the end.
"""

import sys
from pathlib import Path
from typing import Any

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations
from popmq_server.values.records import FairKeys, KeyLimits
from tests.engine.rig import HOUR, MINUTE, SECOND, Rig, message


def send(rig: Rig, topic: str, *entries: Any, **more: Any) -> Any:
    return rig.do(ask.Send(topic, entries, **more))


def first(rig: Rig) -> None:
    """Leases, retries, dead letters, owners, what retention kept, what is damaged, what is being removed."""
    kept(rig)
    damaged(rig)
    rig.topic("orders", queues=2)
    rig.group("billing", max_attempts=3, delays_ms=(SECOND, MINUTE))
    rig.group("audit")
    for number in range(6):
        send(
            rig,
            "orders",
            message(f"a{number}", f"id-a{number}", (f"key-{number % 2}",), "odd" if number % 2 else "even"),
        )
    rows = sorted(rig.pop(6, "orders", "billing", client_id="c1"), key=lambda row: row.body)
    rig.ack(rows[:2], "billing")
    rig.extend(rows[2:3], 20 * HOUR, "billing")
    rig.reject(rows[5:6], "no such customer", "billing")
    send(rig, "orders", *(message(f"b{number}") for number in range(4)))
    rig.pop(2, "orders", "billing", client_id="c2", attempt_id="try", invisible_ms=8 * HOUR)
    rig.release(rows[3:4], "billing", delay_ms=0, reason="not yet")
    rig.release(rows[4:5], "billing", delay_ms=9 * HOUR, reason="much later")
    send(rig, "orders", message("once"), producer_id="p", request_number=7)
    owners(rig)
    rig.group("late", start_from="LATEST")
    rig.pop(1, "orders", "late")


def kept(rig: Rig) -> None:
    """A message in backoff whose chunk went long ago: its record stands in `kept`, and marks tell who moved when."""
    rig.topic("logs", keep_ms=HOUR)
    rig.group("reader")
    for number in range(5):
        rig.send(f"l{number}", topic="logs")
    rows = rig.pop(5, "logs", "reader")
    rig.ack(rows[:4], "reader")
    rig.release(rows[4:], "reader", delay_ms=11 * HOUR)
    for _ in range(24):
        rig.advance(10 * MINUTE)


def damaged(rig: Rig) -> None:
    """The second of three messages does not match its checksum, and was set aside."""
    rig.topic("bad")
    rig.group("careful")
    for text in ("d0", "d1", "d2"):
        rig.send(text, topic="bad")
    with rig.reading() as kv:
        rows = [(key, bytes(value)) for key, value in kv.scan("log") if b"d1" in bytes(value)]

    def flip(kv: Any) -> None:
        for key, value in rows:
            kv.put("log", key, value.replace(b"d1", b"d!"))

    rig.write(flip)
    rig.ack(rig.pop(3, "bad", "careful")[:1], "careful")


def owners(rig: Rig) -> None:
    """One owner holds a sealed set, another one has lost its lease: its set is in the retry topic, tied to it."""
    rig.topic("events", queues=2)
    rig.group("lake")
    for number in range(6):
        send(rig, "events", message(f"e{number}"))
    rig.attach("spark", 30 * HOUR, "lake", topic="events")
    rig.seal(1, owner="spark", group="lake", topic="events", max_messages=2)
    rig.attach("gone", SECOND, "lake", topic="events")
    rig.seal(1, owner="gone", group="lake", topic="events", max_messages=2)
    rig.advance(2 * MINUTE)


def removing(rig: Rig) -> None:
    """A topic that was deleted, and whose messages are not removed yet."""
    rig.topic("temporary")
    send(rig, "temporary", *(message(f"x{number}") for number in range(3)))
    rig.do(ask.DeleteTopic("temporary"))


def second(rig: Rig) -> None:
    """Order, time, transactions, filters, pull, unique ids, redriven dead letters, lite topics, session leases."""
    in_order(rig)
    in_time(rig)
    chosen(rig)
    pulled(rig)
    from tests.engine import lites

    lites.create(rig)
    rig.group("g")
    lites.send(rig, "ann:1", "ann:2", "bob:1")
    lites.sync(rig, "phone", "ADD", "ann", "bob")
    lites.pop(rig, "ann", max_messages=1, invisible_ms=20 * HOUR)
    rig.do(operations.RedrivePiece("billing", (0,)))
    send(rig, "orders", message("held"))
    rig.pop(1, "orders", "audit", client_id="phone", session=True)


def make(rig: Rig, name: str, kind: str, queues: int = 2, **more: Any) -> None:
    rig.do(ask.CreateTopic(name, queues, False, 72 * HOUR, kind, **more))


def in_order(rig: Rig) -> None:
    """Message group a is leased and more of it waits, b is free; in group strict, c is stopped."""
    from tests.engine.traffic.traffic_fifo import fifo_message

    make(rig, "accounts", "FIFO")
    rig.group("ledger")
    rig.group("strict", max_attempts=1, stop_on_failure=True)
    send(rig, "accounts", *(fifo_message(text[0], text) for text in ("a1", "b1")))
    rig.pop(1, "accounts", "ledger", invisible_ms=20 * HOUR)
    send(rig, "accounts", *(fifo_message(text[0], text) for text in ("a2", "b2", "c1", "c2")))
    rig.ack(rig.pop(32, "accounts", "ledger"), "ledger")
    rows = [row for row in rig.pop(32, "accounts", "strict", invisible_ms=20 * HOUR) if row.body == "c1"]
    rig.release(rows, "strict", reason="stuck")


def in_time(rig: Rig) -> None:
    """Delayed by both clocks; half messages that are open and committed."""
    from tests.engine.traffic.traffic_timing import ending, later
    from tests.engine.traffic.traffic_timing import send as places

    make(rig, "mail", "DELAY")
    rig.group("post")
    rig.pop(1, "mail", "post")
    send(rig, "mail", later("in an hour", delay_ms=HOUR), later("at a time", due_ms=rig.now + 2 * HOUR))
    make(rig, "payments", "TRANSACTION", 1)
    rig.group("bank")
    rig.pop(1, "payments", "bank")
    done, undone, _ = places(rig, *(later(f"p{number}", transaction=True) for number in range(3)), topic="payments")
    rig.do(ending([done], True))
    rig.do(ending([undone], False))


def chosen(rig: Rig) -> None:
    """A group with a filter, a topic that stores an id once, one with priorities."""
    rig.group("even")
    rig.do(ask.SetFilter("orders", "even", ("tag", "even")))
    make(rig, "single", "NORMAL", 1, unique_ids_ms=HOUR)
    send(rig, "single", message("s1"), message("s1"))
    make(rig, "urgent", "PRIORITY", 3)
    from tests.engine.traffic.traffic_timing import later

    send(rig, "urgent", later("low", priority=0), later("high", priority=2))


def pulled(rig: Rig) -> None:
    """A group that pulls: an offset is committed, a message was sent back."""
    rig.group("puller")
    rig.do(ask.SetConsumeMode("events", "puller", "PULL"))
    rig.do(ask.UpdateOffsets("events", "puller", {0: 1, 1: 1}))
    rig.group("switched")
    rig.pop(2, "events", "switched", invisible_ms=20 * HOUR)
    rig.do(ask.SetConsumeMode("events", "switched", "PULL"))
    rig.do(ask.SendBack("events", "puller", (ask.SentBack(0, 0, delay_ms=9 * HOUR, reason="later"),)))


def aged(rig: Rig) -> None:
    """A topic that lost its first messages by their age."""
    rig.topic("aged", by_age=True, keep_ms=HOUR)
    rig.send("old", topic="aged")
    rig.advance(3 * HOUR)
    rig.send("young", topic="aged")


def third(rig: Rig) -> None:
    """A schedule; a stage that waits for its batch; a batch that was committed."""
    from tests.engine.stages import commit, stage

    rig.topic("staged")
    rig.do(ask.CreateSchedule("nightly", "0 3 * * *", "UTC", "staged", "ONCE", ask.NewMessage(b"tick", "", "nightly")))
    stage(rig, "done", "s0", "s1", topic="staged", batch=1)
    commit(rig, ("done", 2), batch=1, topic="staged")
    stage(rig, "waits", "s2", topic="staged", batch=2)


def by_turns(rig: Rig) -> None:
    """A group with fair keys that has passed messages out of order, and has a limit of leases for each key."""
    fair = FairKeys("property", "tenant", "/", 2, 5, (KeyLimits("acme", 1),))
    rig.topic("tenants", 1)
    rig.group("fair", fair_keys=fair)
    entries = tuple(message(f"{key}{n}", properties={"tenant": key}) for key in ("acme", "bolt") for n in range(4))
    rig.do(ask.Send("tenants", entries, "", 0, sum(len(entry.data) for entry in entries)))
    rig.pop(8, "tenants", "fair")


def sparse(rig: Rig) -> None:
    """Batches whose messages lie apart, without and with keys: leased, partly acked, released, lapsed, done.

    Of group each: a batch is leased, of one every second message is acked, one is done. Group fair has limits.
    """
    by_turns(rig)
    make(rig, "apart", "NORMAL", 2)
    rig.group("each", fair_keys=FairKeys("property", "tenant"), delays_ms=(SECOND,))
    rig.pop(1, "apart", "each")
    for key in ("acme", "bolt", "cove", "dime"):
        send(rig, "apart", *(message(f"{key}{n}", properties={"tenant": key}) for n in range(8)))
        send(rig, "apart", *(message(f"{key}{n}", properties={"tenant": key}) for n in range(8, 16)))
    rig.ack(rig.pop(8, "apart", "each"), "each")
    rig.release(rig.pop(4, "apart", "each"), "each", delay_ms=9 * HOUR, reason="not yet")
    rig.pop(4, "apart", "each", invisible_ms=SECOND)
    rig.advance(2 * SECOND)
    rig.ack(rig.pop(8, "apart", "each", client_id="c1", attempt_id="try", invisible_ms=20 * HOUR)[::2], "each")


def main() -> None:
    folder, what = Path(sys.argv[1]), sys.argv[2]
    rig = Rig(folder)
    if what == "sparse":
        sparse(rig)
    else:
        contents(rig, int(what))
    assert rig.findings() == [], rig.findings()
    rig.core.close()


def contents(rig: Rig, number: int) -> None:
    """What a store of this format has."""
    if number >= 3:
        aged(rig)
    first(rig)
    if number >= 2:
        second(rig)
    if number >= 3:
        third(rig)
    removing(rig)


if __name__ == "__main__":
    main()
