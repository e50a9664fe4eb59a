"""The broker as a page of rules: plain dicts and lists, and no code of the server.

It does not predict which messages a pop takes: it judges the answer. What came must have been deliverable, in order
within its queue, with the right attempt; what is missing must not have fitted. Then it believes the answer and goes on.
Everything else (results, numbers, what time does) it knows by itself.

    ready    its offset is not below `next` of its queue          leased   under a Lease of a pop, until its due time
    backoff  waits for its due time, then retry                   bound    sealed to a token, as long as the owner lives
    retry    in the retry topic; `tied`: its token may take it back           done, dead
"""

from __future__ import annotations

from typing import Any

from tests.engine.model_facts import (
    OWNER_KEEP_MS,
    Answer,
    Bounds,
    Entry,
    Group,
    Owner,
    Token,
    View,
    must,
)
from tests.engine.model_messages import Messages


class Model(Messages):
    """The whole of it: with owners, and the time."""

    # ── Time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def timed(self) -> bool:
        """What is due now, once over all; whether anything was."""
        moved = False
        entered = self.entered
        for (group, topic), view in self.views.items():
            for place, entry in view.of("leased", "backoff").items():
                if entry.due_ms > self.now_ms:
                    continue
                moved = True
                if entry.state == "leased" and entry.attempts >= self.groups[group].max_attempts:
                    self._bury(group, topic, place, entry, "lease expired")
                else:
                    self._retry(entry, entered)
        for group, settings in self.groups.items():
            for name in list(settings.owners):
                moved |= self._owner_time(group, settings, name, entered)
        return moved

    def _owner_time(self, group: str, settings: Group, name: str, entered: int) -> bool:
        owner = settings.owners[name]
        if owner.lease_until_ms > self.now_ms:
            return self._take_back(group, owner)
        if not owner.released:
            owner.released = True
            for token, entry in self._held(group, owner, "bound") if not settings.exclusive else ():
                self._retry(entry, entered, token)
            return True
        if owner.last_seen_ms + OWNER_KEEP_MS <= self.now_ms:
            for _, entry in self._held(group, owner, "bound"):
                self._retry(entry, entered)
            for _, entry in self._held(group, owner, "retry"):
                entry.tied = None
            del settings.owners[name]
            return True
        return False

    def _take_back(self, group: str, owner: Owner) -> bool:
        lost = list(self._held(group, owner, "retry"))
        for _, entry in lost:
            entry.state, entry.tied = "bound", None
        return bool(lost)

    def _held(self, group: str, owner: Owner, state: str) -> list[tuple[Token, Entry]]:
        """What an owner's tokens hold in this state."""
        found = []
        for (topic, *_), token in owner.tokens.items():
            for place in token.lease.members if token.lease else ():
                entry = self.views[(group, topic)].entries[place]
                if entry.lease is token.lease and entry.state == state and (state == "bound" or entry.tied is token):
                    found.append((token, entry))
        return found

    # ── Owners ───────────────────────────────────────────────────────────────────────────────────────────────────

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
        self._seen(owner, self.now_ms + lease_ms)
        queues = len(self.topics[topic].queues) if topic else 0
        return must(answer == (owner.generation, owner.acked_epoch, queues), "attach", answer, owner)

    def _seen(self, owner: Owner, lease_until_ms: int) -> None:
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

    def renew(self, group: str, name: str, generation: int, lease_ms: int, answer: Any) -> None:
        """`answer`: (tokens, bound messages, lease until) or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "renew", answer, refused)
        owner = self.groups[group].owners[name]
        self._seen(owner, self.now_ms + lease_ms)
        bound = len(self._held(group, owner, "bound"))
        return must(answer == (len(owner.tokens), bound, owner.lease_until_ms), "renew", answer, owner)

    def ack_up_to(self, group: str, name: str, generation: int, epoch: int, answer: Any) -> None:
        """`answer`: (messages finished, acked epoch) or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "ack up to", answer, refused)
        owner = self.groups[group].owners[name]
        acked = 0
        for key, token in list(owner.tokens.items()):
            if token.epoch <= epoch:
                for state in ("bound", "retry"):
                    for of, entry in self._held(group, owner, state):
                        if of is token:
                            entry.state, entry.tied = "done", None
                            self.views[(group, key[0])].acked += 1
                            acked += 1
                del owner.tokens[key]
        owner.acked_epoch = max(owner.acked_epoch, epoch)
        owner.last_seen_ms = self.now_ms
        return must(answer == (acked, owner.acked_epoch), "ack up to", answer, acked, owner)

    def release_owner(self, group: str, name: str, generation: int, answer: Any) -> None:
        """`answer`: messages released, or a code."""
        refused = self.refused_owner(group, name, generation)
        if refused:
            return must(answer == refused, "release owner", answer, refused)
        owner = self.groups[group].owners[name]
        must(answer == len(self._held(group, owner, "bound")), "release owner", answer)
        owner.lease_until_ms, owner.released = self.now_ms, False
        return None

    def seal(
        self,
        topic: str,
        group: str,
        asked: Bounds,
        invisible_ms: int,
        ask: tuple[str, int, int, int, int, int],
        answer: Any,
    ) -> None:
        """A pop with a token. `ask`: owner, generation, epoch, part, chunk, share."""
        name, generation, epoch, part, chunk, share = ask
        refused = self.refused_pop(topic, group, asked.queues) or self.refused_owner(group, name, generation)
        owner = None if refused else self.groups[group].owners[name]
        if owner is not None and epoch <= owner.acked_epoch:
            refused = "EPOCH_ALREADY_ACKED"
        if owner is None or refused or isinstance(answer, str):
            return must(answer == refused, "seal", answer, refused)
        view = self.bind(group, topic)
        lease_ms = invisible_ms or self.groups[group].invisible_ms
        self._seen(owner, max(owner.lease_until_ms, self.now_ms + lease_ms))
        must(not answer.rows or answer.due_ms == owner.lease_until_ms, "lease of the owner", answer, owner)
        token = owner.tokens.get((topic, epoch, part, chunk))
        if token is not None:
            return self._judge_replay(group, view, owner, token, answer)
        asked, share_left = self._within_share(owner, topic, asked, epoch, part, share)
        self._judge_rows(view, topic, asked, answer, owner)
        full = share_left is not None and len(answer.rows) == share_left
        self._judge_end(view, topic, asked, owner, answer, full)
        lease = self._take(view, topic, group, "", answer, "bound", 0, name) if answer.rows else None
        must(answer.sealed == (len(answer.rows), answer.sealed[1], 0, 0) and not answer.replay, "sealed", answer)
        owner.tokens[(topic, epoch, part, chunk)] = Token(epoch, lease, len(answer.rows), answer.sealed[1])
        return None

    def _within_share(
        self, owner: Owner, topic: str, asked: Bounds, epoch: int, part: int, share: int
    ) -> tuple[Bounds, int | None]:
        """What is left of the share of a part, when that is less than was asked."""
        if not share:
            return asked, None
        used = sum(token.count for key, token in owner.tokens.items() if key[:3] == (topic, epoch, part))
        left = max(0, share - used)
        return asked._replace(messages=min(asked.messages, left)), left if left < asked.messages else None

    def _judge_end(
        self, view: View, topic: str, asked: Bounds, owner: Owner, answer: Answer, share_is_full: bool
    ) -> None:
        assert answer.sealed is not None
        taken = {row.place for row in answer.rows}
        foreign = {place for place in self._poppable_retries(view, owner, asked.upto) if place not in taken}
        more = bool(foreign) or any(
            view.next[queue] < self._stop(topic, queue, asked.upto) for queue in asked.queues or range(len(view.next))
        )
        must(answer.sealed[1] == (share_is_full or not more), "end", answer, more, share_is_full)

    def _judge_replay(self, group: str, view: View, owner: Owner, token: Token, answer: Answer) -> None:
        must(answer.replay and answer.sealed == (token.count, token.end, token.stolen, 0), "sealed", answer, token)
        for of, entry in self._held(group, owner, "retry"):
            if of is token:
                entry.state, entry.tied = "bound", None
        if token.lease is None:
            return must(answer.rows == [], "an empty set stays empty", answer)
        return self._judge_repeated(view, token.lease, answer)
