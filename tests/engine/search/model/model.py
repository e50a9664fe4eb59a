"""The broker as pages of rules: plain dicts and lists, and no code of the server.

It does not predict which messages a pop takes: it judges the answer. What came must have been deliverable, in order
within its queue or message group, with the right attempt; what is missing must not have fitted. Then it believes the
answer and goes on. Everything else (results, numbers, what happens with time) it knows by itself.

    model_topics    what exists, where a group begins, what it wants
    model_sends     where a message goes; delayed and half messages
    model_pops      what a pop may answer            model_fifo    … of a FIFO topic, and failures there
    model_handles   ack, extend, release, reject, leases that run out
    model_owners    owners and sealed tokens         model_moves   resets, consume modes, reading by offset
    model_stages    what sinks stage and commit     model_redrives  dead letters that are delivered again
    model_settles   deliveries and messages in one commit

    not reached  its offset is not below `next` of its queue        leased   under a Lease of a pop, until its due time
    backoff      waits for its due time, then retry or waiting      bound    sealed to a token while the owner lives
    retry        in the retry topic, or waiting in its message group; `tied`: its token may take it back
    over         done, dead, filtered, void
"""

from tests.engine.search.model.model_facts import NOTHING_SEEN, Position, Postponed, Seen
from tests.engine.search.model.model_fifo import Lines
from tests.engine.search.model.model_settles import Settles


class Model(Settles):
    """The whole model: the rules of all parts, time, and numbers."""

    def timed(self, seen: Seen = NOTHING_SEEN) -> bool:
        """Does what is due now, once for each kind of work. True if anything was due."""
        moved = self.fire(seen.places)
        moved |= self.check(seen.checks, seen.old)
        entered = self.entered
        for (group, topic), view in self.views.items():
            moved |= self.expire(group, topic, view, entered)
        for group, settings in self.groups.items():
            for name in list(settings.owners):
                moved |= self.owner_time(group, settings, name, entered)
        return moved

    def starts_again(self) -> None:
        """Forgets what the engine forgets in a restart."""
        self.turns_are_lost()
        self.listened = frozenset()
        self.postponed = Postponed()
        self.deleted_ms = 0

    def coming(self) -> list[int]:
        """The times of the next timed work, soonest first, without work that is due already."""
        times = [entry.due_ms for view in self.views.values() for entry in view.of("leased", "backoff")]
        times += [one.due_ms for one in self.delayed.values()] + [half.next_ms for half in self.halves.values()]
        times += [owner.lease_until_ms for group in self.groups.values() for owner in group.owners.values()]
        return sorted({one for one in times if one > self.now_ms})

    # ── Numbers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self, group: str, topic: str) -> int:
        view = self.views[(group, topic)]
        return sum(len(queue) - at for queue, at in zip(self.topics[topic].queues, view.next, strict=True))

    def deliverable(self, group: str, topic: str) -> int:
        """The number of messages for which a parked pop would be woken."""
        view = self.views[(group, topic)]
        if view.mode != "POP":
            return 0
        return self.ready(group, topic) + len(view.of("retry")) + len(Lines(view).ready())

    def numbers(self, group: str, topic: str) -> dict[str, int]:
        """The numbers of a group, in the form of the engine's."""
        view, settings = self.views[(group, topic)], self.groups[group]
        return {
            "ready": self.ready(group, topic),
            "in_flight": len(view.of("leased", "bound")),
            "retry": len(view.of("retry")),
            "backoff": len(view.of("backoff")),
            "waiting": len(view.of("waiting")),
            "stopped": len(Lines(view).stopped),
            "dead": len(settings.dead),
            "acked": view.acked,
            "filtered": view.filtered,
            "expired": view.expired,
            "owners": len(settings.owners),
            "delayed": sum(1 for one in self.delayed.values() if one.topic == topic),
            "dropped": view.dropped,
            "quarantined": 0,
            "oldest_ms": self._oldest(group, topic),
        }

    def _oldest(self, group: str, topic: str) -> int:
        """When the oldest unfinished message was stored; 0 = none."""
        view, found = self.views[(group, topic)], self.topics[topic]
        times = [self.stored_ms(found, entry) for entry in view.held]
        heads = ((queue, at) for queue, at in enumerate(view.next) if at < len(found.queues[queue]))
        times += [found.at(head).stored_ms for head in heads if found.has(head)]
        return min(times, default=0)

    def available(self, group: str, topic: str, upto: Position | None) -> int:
        """Messages deliverable below a position; of waiting messages, one for each message group."""
        view, found = self.views[(group, topic)], self.topics[topic]
        ready = (max(0, self.stop(found, queue, upto) - at) for queue, at in enumerate(view.next))
        return sum(ready) + len(self.poppable(view, None, upto)) + len(Lines(view).ready())

    def message_groups(self, group: str, topic: str) -> list[tuple[str, int, int, bool, str]]:
        """(name, waiting, leased or in backoff, stopped, why) of each that is not free."""
        view = self.views[(group, topic)]
        lines = Lines(view)
        rows = []
        for name in sorted(lines.waiting.keys() | lines.locked):
            line = lines.waiting.get(name, [])
            held = [entry for entry in view.of("leased", "bound", "backoff") if entry.message_group == name]
            why = [entry.reason for entry in line if entry.stopped]
            rows.append((name, len(line), len(held), bool(why), why[0] if why else ""))
        return rows
