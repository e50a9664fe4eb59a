"""The rules of owners and sealed tokens."""

from typing import Any

from tests.engine.search.model.model_facts import (
    OWNER_KEEP_MS,
    Answer,
    Asker,
    Bounds,
    Entry,
    Group,
    Owner,
    Token,
    Topic,
    View,
    must,
)
from tests.engine.search.model.model_fifo import Lines
from tests.engine.search.model.model_handles import Handles

#: The state of the messages of an owner whose lease ended.
RELEASED = ("retry", "waiting")


class Owners(Handles):
    """Leases that outlive a process."""

    def attach(
        self, group: str, name: str, lease_ms: int, topic: str, start: tuple[str, int] | None, answer: Any
    ) -> None:
        """`answer`: (generation, acked epoch, queues) or a code."""
        if topic and topic not in self.topics:
            return must(answer == "TOPIC_NOT_FOUND", "attach", answer)
        if group not in self.groups:
            return must(answer == "GROUP_NOT_FOUND", "attach", answer)
        if topic:
            self.bind(group, topic, start)
        owner = self.groups[group].owners.setdefault(name, Owner())
        owner.generation += 1
        self._seen_now(owner, self.now_ms + lease_ms)
        queues = len(self.topics[topic].queues) if topic else 0
        return must(answer == (owner.generation, owner.acked_epoch, queues), "attach", answer, owner)

    def _seen_now(self, owner: Owner, lease_until_ms: int) -> None:
        owner.lease_until_ms, owner.last_seen_ms, owner.released = lease_until_ms, self.now_ms, False

    def refused_owner(self, group: str, name: str, generation: int) -> str:
        if group not in self.groups:
            return "GROUP_NOT_FOUND"
        owner = self.groups[group].owners.get(name)
        if owner is None:
            return "OWNER_NOT_FOUND"
        if generation and generation < owner.generation:
            return "FENCED"
        return "INVALID_FIELD" if generation > owner.generation else ""

    def holding(self, owner: Owner, *states: str) -> list[tuple[Token, Entry]]:
        """The messages of an owner's tokens in these states."""
        return [
            (token, entry)
            for token in owner.tokens.values()
            for entry in (token.lease.members if token.lease else ())
            if entry.lease is token.lease and entry.state in states and (entry.state == "bound" or entry.tied is token)
        ]

    def renew(self, group: str, name: str, generation: int, lease_ms: int, answer: Any) -> None:
        """`answer`: (tokens, bound messages, lease until) or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "renew", answer, refused)
        owner = self.groups[group].owners[name]
        self._seen_now(owner, self.now_ms + lease_ms)
        bound = len(self.holding(owner, "bound"))
        return must(answer == (len(owner.tokens), bound, owner.lease_until_ms), "renew", answer, owner)

    def ack_up_to(self, group: str, name: str, generation: int, epoch: int, answer: Any) -> None:
        """`answer`: (messages finished, acked epoch) or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "ack up to", answer, refused)
        owner = self.groups[group].owners[name]
        acked = 0
        for token, entry in self.holding(owner, "bound", *RELEASED):
            if token.epoch <= epoch:
                view = self.view_of(entry)
                view.over(entry, "done")
                view.acked += 1
                acked += 1
        owner.tokens = {key: token for key, token in owner.tokens.items() if token.epoch > epoch}
        owner.acked_epoch = max(owner.acked_epoch, epoch)
        owner.last_seen_ms = self.now_ms
        return must(answer == (acked, owner.acked_epoch), "ack up to", answer, acked, owner)

    def release_owner(self, group: str, name: str, generation: int, answer: Any) -> None:
        """`answer`: messages released, or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "release owner", answer, refused)
        owner = self.groups[group].owners[name]
        must(answer == len(self.holding(owner, "bound")), "release owner", answer)
        owner.lease_until_ms, owner.released = self.now_ms, False
        return None

    # ── Sealed pops ──────────────────────────────────────────────────────────────────────────────────────────────

    def seal(
        self,
        topic: str,
        group: str,
        asked: Bounds,
        invisible_ms: int,
        ask: tuple[str, int, int, int, int, int],
        wanted: tuple[str, str] | None,
        answer: Any,
    ) -> None:
        """A pop with a token. `ask`: owner, generation, epoch, part, chunk, share."""
        name, _, epoch, part, chunk, share = ask
        refused = self._refused_seal(topic, group, asked, ask, wanted)
        if refused or isinstance(answer, str):
            return must(answer == refused, "seal", answer, refused)
        view, owner = self.bind(group, topic), self.groups[group].owners[name]
        token = owner.tokens.get((topic, epoch, part, chunk))
        if token is None:
            self.subscribe(view, wanted)
        lease_ms = invisible_ms or self.groups[group].invisible_ms
        self._seen_now(owner, max(owner.lease_until_ms, self.now_ms + lease_ms))
        must(not answer.rows or answer.due_ms == owner.lease_until_ms, "lease of the owner", answer, owner)
        if token is not None:
            return self._judge_replay(owner, token, answer)
        asked, share_left = self._within_share(owner, topic, asked, epoch, part, share)
        asker = Asker(name, owner, part)
        locked = Lines(view).locked
        entries = self._judge_rows(view, topic, asked, answer, asker)
        full = share_left is not None and len(answer.rows) == share_left
        more = self._is_more(view, self.topics[topic], asked, asker, entries, locked)
        must(answer.sealed == (len(answer.rows), full or not more, 0, 0), "end", answer, more, full)
        must(not answer.replay, "a first pop is no replay")
        lease = self._take(view, topic, group, answer, entries, owner=name, part=part) if answer.rows else None
        owner.tokens[(topic, epoch, part, chunk)] = Token(epoch, lease, len(answer.rows), answer.sealed[1])
        return None

    def _refused_seal(
        self,
        topic: str,
        group: str,
        asked: Bounds,
        ask: tuple[str, int, int, int, int, int],
        wanted: tuple[str, str] | None,
    ) -> str:
        refused = self.refused_pop(topic, group, asked.queues) or self.refused_owner(group, ask[0], ask[1])
        if refused:
            return refused
        owner, (epoch, part, chunk) = self.groups[group].owners[ask[0]], ask[2:5]
        if epoch <= owner.acked_epoch:
            return "EPOCH_ALREADY_ACKED"
        known = (topic, epoch, part, chunk) in owner.tokens  # its set stays as it was: no filter is compared
        return "FILTER_CONFLICT" if not known and self.conflicts(topic, group, wanted) else ""

    def _within_share(
        self, owner: Owner, topic: str, asked: Bounds, epoch: int, part: int, share: int
    ) -> tuple[Bounds, int | None]:
        """The rest of the share of a part, if it is smaller than the requested number."""
        if not share:
            return asked, None
        used = sum(token.count for key, token in owner.tokens.items() if key[:3] == (topic, epoch, part))
        left = max(0, share - used)
        return asked._replace(messages=min(asked.messages, left)), left if left < asked.messages else None

    def _is_more(
        self, view: View, found: Topic, asked: Bounds, asker: Asker, entries: list[Entry | None], locked: set[str]
    ) -> bool:
        """Whether a pop left messages for others; message groups locked before it do not count."""
        queues = asked.queues or range(len(view.next))
        if any(view.next[queue] < self.stop(found, queue, asked.upto) for queue in queues):
            return True  # perhaps the message does not exist any more: not looked up yet
        taken = [id(entry) for entry in entries if entry is not None]
        if found.kind != "FIFO":
            return any(id(entry) not in taken for entry in self.poppable(view, asker, asked.upto))
        lines = Lines(view, asker, asked.upto)
        fronts = {}
        for message_group, line in lines.waiting.items():
            left = [entry for entry in line if id(entry) not in taken]
            if left and message_group not in locked | lines.stopped:
                fronts[message_group] = left[0]
        return any(lines.allows(entry) for entry in fronts.values())

    def _judge_replay(self, owner: Owner, token: Token, answer: Answer) -> None:
        gone = (0, token.count) if token.lost else (token.stolen, 0)
        must(answer.replay and answer.sealed == (token.count, token.end, *gone), "sealed", answer, token)
        for of, entry in self.holding(owner, *RELEASED):
            if of is token:
                entry.state, entry.tied = "bound", None
        if token.lease is None:
            return must(answer.rows == [], "an empty set stays empty", answer)
        return self._judge_repeated(token.lease, answer)

    # ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def owner_time(self, group: str, settings: Group, name: str, entered: int) -> bool:
        """Does the timed work of an owner: its lease ends, or it is dropped. True if anything was due."""
        owner = settings.owners[name]
        if owner.lease_until_ms > self.now_ms:
            return self._reclaim(owner)
        if self.now_ms < self.postponed.leases_ms:
            return False
        if not owner.released:
            owner.released = True
            for token, entry in self.holding(owner, "bound") if not settings.exclusive else ():
                self.come_back(self.view_of(entry), entry, entered, token)
            return True
        if owner.last_seen_ms + OWNER_KEEP_MS <= self.now_ms:
            for _, entry in self.holding(owner, "bound"):
                self.come_back(self.view_of(entry), entry, entered)
            for _, entry in self.holding(owner, *RELEASED):
                entry.tied = None
            del settings.owners[name]
            return True
        return False

    def _reclaim(self, owner: Owner) -> bool:
        """A live owner takes back the messages that it lost and no other client took."""
        lost = self.holding(owner, *RELEASED)
        for _, entry in lost:
            entry.state, entry.tied = "bound", None
        return bool(lost)
