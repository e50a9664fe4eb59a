"""The rules of ack, extend, release and reject, and of leases that run out."""

from typing import Any, NamedTuple

from tests.engine.search.model.model_facts import NEVER_GIVEN, SNOOZES_MAX, Entry, Handle, Lease, View, must
from tests.engine.search.model.model_fifo import MessageGroups
from tests.engine.search.model.model_pops import undone

BEHIND = "the message before it in its message group failed"
EXPIRED = "lease expired"


class How(NamedTuple):
    """One change of a lease: its kind and delay. `snooze`: a release that is not counted, as often as is allowed."""

    kind: str
    delay_ms: int | None
    uncounted: bool
    reason: str
    snooze: bool = False


class Handles(MessageGroups):
    """Acks and changes of deliveries, and leases that end."""

    def find(self, group: str, handle: Handle) -> Entry | str:
        """The undone member that a handle names, or the code."""
        lease = self.leases.get(handle.ck_id)
        if lease is None or (lease.group, lease.topic) not in self.views or not self._lives(lease):
            return "INVALID_HANDLE" if handle.ck_id >= NEVER_GIVEN else "HANDLE_LAPSED"
        if lease.nonce != handle.nonce or handle.member >= len(lease.members) or lease.group != group:
            return "INVALID_HANDLE"
        entry = lease.members[handle.member]
        if entry.lease is not lease or entry.state not in ("leased", "bound"):
            return "HANDLE_LAPSED"
        return entry

    def _forget(self, which: Any) -> None:
        super()._forget(which)
        self.leases = {number: lease for number, lease in self.leases.items() if not which(lease.group, lease.topic)}

    def _lives(self, lease: Lease) -> bool:
        """An owner's CheckPoint lives as long as its token."""
        if lease.owner:
            owner = self.groups[lease.group].owners.get(lease.owner)
            return owner is not None and any(token.lease is lease for token in owner.tokens.values())
        return bool(undone(lease))

    def view_of(self, entry: Entry) -> View:
        assert entry.lease is not None
        return self.views[(entry.lease.group, entry.lease.topic)]

    def ack(self, group: str, handles: list[Handle], answer: Any) -> None:
        """`answer`: a code for each handle, "" for done; or one code."""
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "ack", answer)
        found = [self.find(group, handle) for handle in handles]
        seen: set[int] = set()
        expected = []
        for one in found:
            if isinstance(one, str):
                expected.append(one)
            else:
                expected.append("HANDLE_LAPSED" if id(one) in seen else "")
                seen.add(id(one))
        must(answer == expected, "ack", answer, expected)
        for one, code in zip(found, expected, strict=True):
            if not isinstance(one, str) and not code:
                view = self.view_of(one)
                view.over(one, "done")
                view.acked += 1
        return None

    # ── Changes ──────────────────────────────────────────────────────────────────────────────────────────────────

    def change(self, group: str, changes: list[tuple[Handle, How]], answer: Any) -> None:
        """`answer`: (visible ms, dead) or a code for each; those that want the same of one lease go together."""
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "change", answer)
        results: list[Any] = [None] * len(changes)
        wanted: dict[tuple[int, int, How], list[tuple[int, Entry]]] = {}
        seen: set[int] = set()
        for place, (handle, how) in enumerate(changes):
            found = self.find(group, handle)
            if isinstance(found, str):
                results[place] = found
            elif (found.lease is not None and found.lease.owner) or id(found) in seen:
                results[place] = "INVALID_FIELD"
            else:
                seen.add(id(found))
                how = _snoozed(found, how) if how.snooze else how
                wanted.setdefault((handle.ck_id, found.part, how), []).append((place, found))
        entered = self.entered
        for (ck_id, _, how), alike in wanted.items():
            lease = self.leases[ck_id]
            still = [entry for _, entry in alike if entry in undone(lease)]
            without = self._without_room(lease, still, how)
            refused = {place for place, entry in alike if entry in without and answer[place] == "STORAGE_FULL"}
            for place in refused:
                results[place] = "STORAGE_FULL"
            alike = [(place, entry) for place, entry in alike if place not in refused]
            still = [entry for _, entry in alike if entry in undone(lease)]
            told = self._change(lease, still, how, entered)
            for place, entry in alike:
                results[place] = told.get(id(entry), "HANDLE_LAPSED")
        must(answer == results, "change", answer, results)
        return None

    def _without_room(self, lease: Lease, entries: list[Entry], how: How) -> list[Entry]:
        """Messages that stay leased on a full disk: future dead letters, and the rest of their message groups."""
        if not self.full or how.kind == "extend":
            return []
        settings, tried = self.groups[lease.group], entries
        if how.kind == "release":
            entries = sorted(entries, key=lease.members.index)
            tried = list(_first(entries).values()) if entries and entries[0].message_group else entries
            if how.uncounted or (settings.stops and entries and entries[0].message_group):
                return []
            tried = [one for one in tried if one.attempts >= settings.max_attempts]
        locked = {one.message_group for one in tried} - {""}
        return [one for one in entries if one in tried or one.message_group in locked]

    def _change(self, lease: Lease, entries: list[Entry], how: How, entered: int) -> dict[int, tuple[int, bool]]:
        """The answer to each of them, by its id."""
        entries.sort(key=lease.members.index)
        if how.kind == "extend":
            return self._extend(lease, entries, how)
        if how.kind == "reject":
            for entry in entries:
                self.dead_letter(lease.group, lease.topic, entry, how.reason)
            return {id(entry): (self.now_ms, True) for entry in entries}
        if entries and entries[0].message_group:
            return self._release_in_order(lease, entries, how)
        return {id(entry): self._release(lease, entry, how, entered) for entry in entries}

    def _extend(self, lease: Lease, entries: list[Entry], how: How) -> dict[int, tuple[int, bool]]:
        """Members that are extended without the rest of their batch have a lease of their own from then on."""
        due_ms = self.now_ms + (how.delay_ms or 0)
        whole = [entry for entry in undone(lease) if entries and entry.part == entries[0].part] == entries
        for entry in entries:
            entry.due_ms = due_ms
            if not whole:
                entry.part = 1 + lease.members.index(entry)
        return {id(entry): (due_ms, False) for entry in entries}

    def _release(self, lease: Lease, entry: Entry, how: How, entered: int) -> tuple[int, bool]:
        settings, view = self.groups[lease.group], self.view_of(entry)
        if entry.attempts >= settings.max_attempts and not how.uncounted:
            self.dead_letter(lease.group, lease.topic, entry, how.reason or "no attempts left")
            return self.now_ms, True
        delay_ms = self._delay_ms(lease, entry, how)
        entry.attempts -= how.uncounted
        entry.snoozes += how.snooze
        entry.reason = how.reason
        if delay_ms:
            entry.state, entry.due_ms, entry.lease = "backoff", self.now_ms + delay_ms, None
        else:
            self.come_back(view, entry, entered)
        return self.now_ms + delay_ms, False

    def _delay_ms(self, lease: Lease, entry: Entry, how: How) -> int:
        table = self.groups[lease.group].delays_ms
        return how.delay_ms if how.delay_ms is not None else table[min(entry.attempts, len(table)) - 1]

    def _release_in_order(self, lease: Lease, entries: list[Entry], how: How) -> dict[int, tuple[int, bool]]:
        """The first message of each message group has failed; the later ones of the lease are released uncounted."""
        settings, view = self.groups[lease.group], self.views[(lease.group, lease.topic)]
        failed = _first(entries)
        out = [one for one in failed.values() if one.attempts >= settings.max_attempts and not how.uncounted]
        dead = [] if settings.stops else out
        back = _first([one for one in entries if one not in dead])
        behind = [
            one
            for one in undone(lease)
            if one not in failed.values() and (one in entries or self._is_behind(lease, one, back))
        ]
        told = {id(one): (self.now_ms, False) for one in entries}
        for one in out:
            told[id(one)] = self.now_ms, one in dead
            self.fail(lease.group, lease.topic, one, how.reason or "no attempts left")
        for one in behind:
            one.attempts, one.reason = one.attempts - 1, BEHIND
            self.come_back(view, one, 0)
        for one in failed.values():
            if one not in out:
                told[id(one)] = self._release(lease, one, how, 0)
        return told

    def _is_behind(self, lease: Lease, one: Entry, back: dict[str, Entry]) -> bool:
        """Whether a message follows one that comes back; after a dead-lettered one the client goes on."""
        first = back.get(one.message_group)
        return first is not None and lease.members.index(first) < lease.members.index(one)

    # ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def expire(self, group: str, topic: str, view: View, entered: int) -> bool:
        """Leases that ran out, and delays that are over, soonest first; whether there were any.

        A message that cannot become a dead letter on a full disk stays leased until the engine looks for room again,
        also if its group has other rules by then. The others of its lease go on when that happens first.
        """
        if self.now_ms < self.postponed.leases_ms:
            return False
        due = [entry for entry in view.of("leased", "backoff") if entry.due_ms <= self.now_ms]
        parts: dict[tuple[int, int, int], list[Entry]] = {}
        moved = 0
        for entry in due:
            moved += entry.state == "backoff"
            if entry.state == "backoff":
                self.come_back(view, entry, entered)
            elif entry.lease is not None:
                parts.setdefault((entry.due_ms, entry.lease.ck_id, entry.part), []).append(entry)
        for (_, ck_id, part), entries in sorted(parts.items()):
            moved += self._run_out(self.leases[ck_id], part, entries, entered)
        return moved > 0

    def _run_out(self, lease: Lease, part: int, entries: list[Entry], entered: int) -> int:
        """A part of a lease ran out; how many messages left it."""
        settings, view, moved = self.groups[lease.group], self.views[(lease.group, lease.topic)], 0
        tried, passed_over = list(_first(undone(lease)).values()), (lease.ck_id, part) in self.without_room
        back: list[Entry] = []
        for entry in [one for one in entries if one in undone(lease)]:
            dies, in_order = entry.attempts >= settings.max_attempts, bool(entry.message_group) and view.mode == "POP"
            follows, stops = in_order and entry not in tried, settings.stops and in_order
            waits = self.now_ms < self.postponed.letters_ms and entry.due_ms <= self.postponed.letters_due_ms
            letter = dies and not follows and not stops
            if (waits and (letter or passed_over)) or (letter and self._is_blocked(entry)):
                self.without_room.add((lease.ck_id, part))
                continue
            moved += 1
            if in_order and not letter:
                back.append(entry)
            if dies and not follows:
                self.fail(lease.group, lease.topic, entry, EXPIRED)
                continue
            entry.attempts, entry.reason = entry.attempts - follows, EXPIRED
            self.come_back(view, entry, entered)
        self._pull_back(lease, view, _first(sorted(back, key=lease.members.index)))
        return moved

    def _pull_back(self, lease: Lease, view: View, back: dict[str, Entry]) -> None:
        """Messages that follow one that comes back wait after it again, also if they were extended alone."""
        for one in undone(lease):
            if self._is_behind(lease, one, back):
                one.attempts, one.reason = one.attempts - 1, BEHIND
                self.come_back(view, one, 0)

    def _is_blocked(self, entry: Entry) -> bool:
        """Whether the engine says that the disk, which was full in this batch, has no room for the dead letter."""
        if entry.lease is None:
            return False
        member = next(at for at, one in enumerate(entry.lease.members) if one is entry)
        return any(ck_id == entry.lease.ck_id and bits >> member & 1 for (ck_id, _), bits in self.blocked.items())


def _snoozed(entry: Entry, how: How) -> How:
    """A snooze counts no attempt until the message was snoozed as often as it may be; then it is a release."""
    if entry.snoozes < SNOOZES_MAX:
        return how._replace(uncounted=True, reason=how.reason or "snoozed")
    why = f"snoozed {SNOOZES_MAX} times, as often as its group allows"
    reason = f"{why}: {how.reason}" if how.reason else why
    return how._replace(snooze=False, reason=reason.encode()[:4096].decode(errors="ignore"))


def _first(entries: list[Entry]) -> dict[str, Entry]:
    """The first of each message group."""
    found: dict[str, Entry] = {}
    for entry in entries:
        found.setdefault(entry.message_group, entry)
    return found
