"""Judges a campaign: linear passes over its histories, no search.

    Facts    what each client asked and was answered, joined by message and by delivery   ┐
    Survey   what the broker has after everything came to rest                            ┴─▶ rules ─▶ findings

Each rule judges the claims that its docstring begins with; CLAIMS has them in words.

Broker times (popped_ms, invisible_until_ms, visible_ms) are compared with each other to the millisecond; they are
compared with client times only where a margin is named. A call without an answer may have happened or not: every rule
assumes the case that fits the other records, so a finding is always a defect.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.judging.facts import DeadLetter, Delivery, Facts, Position, Survey, Touch
from popmq_verify.judging.ordered import order, settles

Finding = tuple[str, str]  # claim, what contradicts it

CLAIMS = {
    "lost": "no answered send is lost",
    "phantom": "nothing is delivered or stored that was not sent",
    "changed": "bodies come back byte for byte",
    "doubled": "a request number stores once, at the answered positions",
    "overlap": "within a group, leases of a message never overlap",
    "early": "nothing comes back before its deadline",
    "after ack": "an answered ack or reject is final",
    "attempts": "attempt = committed pops",
    "handles": "live handles work, lapsed ones are refused",
    "dead letters": "one dead letter, after the last attempt or a reject",
    "numbers": "the numbers equal what is there",
    "sealed": "a token is one set forever; the epochs are the topic, once",
    "order": "FIFO: a message follows those before it in its message group",
    "settled": "a settle acks and sends, or does neither",
    "store": "popmq check finds nothing",
}
# Client and broker read the same wall clock of one machine; scheduling may move either by this much.
EARLY_MARGIN_MS = 50
LATE_MARGIN_MS = 1000
SHORTEST_LEASE_MS = 1000


def check(facts: Facts, survey: Survey) -> list[Finding]:
    """Every contradiction found, as (claim, sentence)."""
    rules = (_losses, _positions, _leases, _attempts, _handles, _dead_letters, _numbers, order, settles)
    return facts.oddities + [finding for rule in rules for finding in rule(facts, survey)]


def _losses(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """lost: each group has acked an answered message, or has it as a dead letter."""
    for message_id, sent in facts.sent.items():
        if sent.position is None:
            continue
        for group, dead in survey.dead.items():
            if not facts.acked(group, message_id) and message_id not in dead:
                yield "lost", f"{message_id} at {sent.topic} {sent.position} is gone for group {group}"


def _positions(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """phantom, doubled, lost: each stored message was sent, is stored once, and at the position that was answered; and
    each delivered one came from where it is stored.
    """
    for topic, stored in survey.stored.items():
        for message_id, positions in stored.items():
            sent = facts.sent.get(message_id)
            if sent is None or sent.topic != topic:
                yield "phantom", f"{message_id} is stored in {topic}, where no client sent it"
            elif len(positions) > 1 or sent.position not in (None, positions[0]):
                yield "doubled", f"{message_id}, answered at {sent.position}, is stored at {positions}"
    for message_id, sent in facts.sent.items():
        # A message that is not stored any more must be finished by every group: `_losses` checks that.
        if sent.position is not None and message_id not in survey.stored[sent.topic] and not survey.dropping:
            yield "lost", f"{message_id} is not at {sent.topic} {sent.position}"
    for delivery in facts.by_handle.values():
        if delivery.position not in _places(facts, survey, delivery):
            yield "phantom", f"{delivery.message_id} was delivered from {delivery.topic} {delivery.position}"
    yield from _requests(facts)


def _places(facts: Facts, survey: Survey, delivery: Delivery) -> list[Position]:
    """Where a delivered message may lie: where it is stored, or, dropped since, where its Send was answered."""
    found = survey.stored[delivery.topic].get(delivery.message_id, [])
    sent = facts.sent.get(delivery.message_id)
    if found or not survey.dropping or sent is None:
        return found
    return [sent.position or delivery.position]


def _requests(facts: Facts) -> Iterator[Finding]:
    """One request goes to one queue, in order, and a known request number is answered as such."""
    answered: Counter[tuple[str, int]] = Counter()
    for send in facts.sends():
        results = send.told.get("results", [])
        if any(after != [before[0], before[1] + 1] for before, after in pairwise(results)):
            yield "doubled", f"the messages of one request are not side by side: {send.asked['ids'][0]}…"
        key = (send.asked["producer"], send.asked["number"])
        if send.ok and send.asked["producer"]:
            if answered[key] and not send.told["duplicate"]:
                yield "doubled", f"request {key} was stored twice"
            answered[key] += 1


def _leases(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """after ack, early, overlap: judges each pair of consecutive deliveries of a message to a group.

    The second may only come after the first was acked, released or rejected, or after its lease expired. A call without
    an answer may have ended the lease, so it excuses the pair.
    """
    offset = facts.history.wall_minus_monotonic_ns
    for (group, message_id), chain in facts.chains.items():
        for before, after in pairwise(chain):
            who = f"{message_id} in {group}"
            final = [
                touch for touch in before.touches if touch.done and (touch.kind in ("ack", "reject") or touch.dead)
            ]
            if final:
                yield "after ack", f"{who}: delivered as attempt {after.attempt} after its {final[0].kind} was answered"
            if before.follower:
                continue  # its lease may have ended with that of the message before it
            released = [touch.visible_ms for touch in before.touches if touch.kind == "release" and touch.done]
            if released and after.popped_ms < min(released):
                yield "early", f"{who}: back {min(released) - after.popped_ms} ms before its delay was over"
            if any(touch.ends and touch.operation.called_ns < after.pop.returned_ns for touch in before.touches):
                continue
            floor = min(before.deadlines(after.pop, offset))
            if after.popped_ms < floor:
                yield (
                    "overlap",
                    f"{who}: popped {floor - after.popped_ms:.0f} ms before the lease of {before.pop.client} ended",
                )


def _attempts(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """attempts: the attempt of each delivery is one more than the number of counted pops before it.

    Pops without an answer may have counted, and so may releases without one: so a range is allowed, from `low` + 1 to
    `high` + 1 + the pops that may be hidden before this delivery.
    """
    for (group, message_id), chain in facts.chains.items():
        low = high = 0  # how many committed pops have come before, as the broker counts them
        since_ns = facts.sent[message_id].called_ns if message_id in facts.sent else 0
        since_ms = facts.history.wall_ms(since_ns) - EARLY_MARGIN_MS
        for delivery in chain:
            # A pop without an answer held the message for its whole lease: at most one a second.
            room = int(delivery.popped_ms - since_ms) // SHORTEST_LEASE_MS
            hidden = min(room, facts.hidden_pops(group, delivery.topic, since_ns, delivery.pop.returned_ns))
            if not low + 1 <= delivery.attempt <= high + 1 + hidden:
                bounds = f"{low + 1}…{high + 1 + hidden}"
                yield "attempts", f"{message_id} in {group}: attempt {delivery.attempt}, expected {bounds}"
            if delivery.attempt > survey.max_attempts[group]:
                yield "attempts", f"{message_id} in {group}: attempt {delivery.attempt} is over the maximum"
            uncounted = [touch for touch in delivery.touches if touch.uncounted and touch.possible]
            low = delivery.attempt - (1 if uncounted or delivery.follower else 0)
            high = delivery.attempt - (1 if any(touch.done for touch in uncounted) else 0)
            since_ns, since_ms = delivery.pop.called_ns, delivery.popped_ms


def _handles(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """handles: an ack or change of a delivery is either done or refused with HANDLE_LAPSED, each at the right time.

    Without room on the disk there is no place for a dead letter: STORAGE_FULL, and the lease stays.
    """
    for delivery in facts.by_handle.values():
        for touch in delivery.touches:
            if touch.code == pb.STORAGE_FULL and touch.kind in ("reject", "release"):
                continue
            if touch.code not in (None, 0, pb.HANDLE_LAPSED):
                yield "handles", f"{touch.kind} of {delivery.message_id}: {pb.Code.Name(touch.code)}"
            elif touch.code is not None:
                yield from _lapse(facts, delivery, touch)


def _lapse(facts: Facts, delivery: Delivery, touch: Touch) -> Iterator[Finding]:
    """handles: a call that was done did not come long after the deadline, and one that was refused not before it.

    The margins cover the scheduling of both processes, and the time in which the killed broker answered no client.
    """
    history, operation = facts.history, touch.operation
    deadlines = delivery.deadlines(operation, history.wall_minus_monotonic_ns, but=touch)
    ended = any(
        other.ends and other is not touch and other.operation.called_ns < operation.returned_ns
        for other in delivery.touches
    )
    if touch.operation.told.get("duplicate"):
        return  # an earlier try of the settle did it
    late_ms = history.wall_ms(operation.called_ns) - max(deadlines)
    left_ms = min(deadlines) - history.wall_ms(operation.returned_ns)
    what = f"{touch.kind} of {delivery.message_id} in {delivery.group}"
    if touch.done and late_ms > LATE_MARGIN_MS + facts.silent_ms(max(deadlines), operation.called_ns):
        yield "handles", f"{what} was accepted {late_ms:.0f} ms after its deadline"
    if touch.code and left_ms > EARLY_MARGIN_MS and not ended and not delivery.follower:
        yield "handles", f"{what} was refused {left_ms:.0f} ms before its deadline"


def _dead_letters(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """dead letters: its chain of deliveries justifies each one, and each reject that was answered has made one."""
    for group, dead in survey.dead.items():
        for message_id, letters in dead.items():
            chain = facts.chains.get((group, message_id), [])
            for complaint in _dead_letter(facts, chain, message_id, letters, survey.max_attempts[group]):
                yield "dead letters", f"{message_id} of {group}: {complaint}"
    for (group, message_id), chain in facts.chains.items():
        told = any(touch.done and touch.dead for one in chain for touch in one.touches)
        if told and message_id not in survey.dead[group]:
            yield "dead letters", f"{message_id} of {group}: answered as dead, but there is no dead letter"


def _dead_letter(
    facts: Facts, chain: list[Delivery], message_id: str, letters: list[DeadLetter], max_attempts: int
) -> Iterator[str]:
    """What is wrong with the dead letters of one message, as sentences. Only the first is examined: a second is itself
    wrong.
    """
    letter, touches = letters[0], [touch for delivery in chain for touch in delivery.touches]
    if len(letters) > 1:
        yield f"{len(letters)} dead letters"
    if not letter.intact:
        yield "its body changed"
    if message_id not in facts.sent or letter.topic != facts.sent[message_id].topic:
        yield f"it was not sent to {letter.topic}"
    if any(touch.kind == "ack" and touch.done for touch in touches):
        yield "it was acked"
    if chain and chain[-1].attempt > letter.attempts:
        yield f"{letter.attempts} attempts, but attempt {chain[-1].attempt} was answered"
    rejected = any(touch.kind == "reject" and touch.possible for touch in touches)
    if not rejected and letter.attempts != max_attempts:
        yield f"dead after {letter.attempts} of {max_attempts} attempts"


def _numbers(facts: Facts, survey: Survey) -> Iterator[Finding]:
    """numbers: at rest nothing is ready, leased or waiting, and `acked` and `dead` are as the clients saw them.

    An ack without an answer may have been counted or not, so `acked` has a range.
    """
    acked: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])  # certainly, possibly
    for (group, _), chain in facts.chains.items():
        acks = [touch for one in chain for touch in one.touches if touch.kind == "ack" and touch.possible]
        bounds = acked[group, chain[0].topic]
        bounds[0] += any(touch.done for touch in acks)
        bounds[1] += bool(acks)
    for (group, topic), stats in survey.stats.items():
        if group not in survey.dead:  # an owner's: sealed.py judges it
            continue
        for name in ("ready", "in_flight", "retry", "backoff", "waiting", "delayed", "dropped", "quarantined"):
            if stats[name]:
                yield "numbers", f"{name} of {group} in {topic} is {stats[name]} at rest"
        low, high = acked[group, topic]
        if not low <= stats["acked"] <= high:
            yield "numbers", f"acked of {group} in {topic} is {stats['acked']}, expected {low}…{high}"
        if stats["dead"] != len(survey.dead[group]):
            yield "numbers", f"dead of {group} is {stats['dead']}, expected {len(survey.dead[group])}"
