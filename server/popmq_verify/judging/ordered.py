"""The rules about several messages at once: the order of a message group, and settles, which ack and send in one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from popmq_verify.judging.facts import Delivery, Facts, Survey
from popmq_verify.load.history import NEVER, Operation

Line = tuple[str, str, str]  # group, topic, message group


def order(facts: Facts, survey: Survey) -> Iterator[tuple[str, str]]:
    """order: when a message is delivered, those before it in its message group are done, or come before it in the
    same answer. What retention dropped is not stored, and is not judged.
    """
    lines: dict[tuple[str, str], list[str]] = defaultdict(list)  # topic, message group → ids by offset
    for topic, stored in survey.stored.items():
        for _, message_id in sorted((positions[0], message_id) for message_id, positions in stored.items()):
            sent = facts.sent.get(message_id)
            if sent is not None and sent.message_group:
                lines[topic, sent.message_group].append(message_id)
    for (group, topic, name), pops in _pops(facts).items():
        ids = lines[topic, name]
        place = {message_id: number for number, message_id in enumerate(ids)}
        done_ns = [_done_ns(facts, survey, group, message_id) for message_id in ids]
        for pop, given in pops:
            last = max((place[one.message_id] for one in given if one.message_id in place), default=0)
            here = {one.message_id for one in given}
            for earlier in ids[:last]:
                if earlier not in here and done_ns[place[earlier]] > pop.returned_ns:
                    yield "order", f"{ids[last]} in {group} came before {earlier} of its message group {name} was done"


def _pops(facts: Facts) -> dict[Line, list[tuple[Operation, list[Delivery]]]]:
    """The deliveries of each answer, by message group."""
    found: dict[Line, dict[int, tuple[Operation, list[Delivery]]]] = defaultdict(dict)
    for one in facts.by_handle.values():
        sent = facts.sent.get(one.message_id)
        if sent is not None and sent.message_group:
            pops = found[one.group, one.topic, sent.message_group]
            pops.setdefault(id(one.pop), (one.pop, []))[1].append(one)
    return {line: list(pops.values()) for line, pops in found.items()}


def _done_ns(facts: Facts, survey: Survey, group: str, message_id: str) -> int:
    """The earliest time at which a group may have been done with a message; NEVER if nothing says so."""
    chain = facts.chains.get((group, message_id), [])
    ends = [
        touch.operation.called_ns
        for one in chain
        for touch in one.touches
        if touch.possible
        and (touch.kind in ("ack", "reject") or touch.dead or (touch.kind == "release" and not touch.done))
    ]
    if message_id in survey.dead.get(group, {}):  # its last attempt ended by itself
        ends.append(max((one.pop.called_ns for one in chain), default=0))
    return min(ends, default=NEVER)


def settles(facts: Facts, survey: Survey) -> Iterator[tuple[str, str]]:
    """settled: of a settle without an answer, what it sent is stored if and only if its acks hold."""
    if survey.dropping:
        return
    tries: dict[tuple[str, int], list[Operation]] = defaultdict(list)
    for settle in facts.history.of("settle"):
        if settle.how != "refused":
            tries[settle.asked["producer"], settle.asked["number"]].append(settle)
    for settle, *others in tries.values():
        if any(one.ok for one in (settle, *others)):
            continue
        stored = any(message_id in survey.stored[settle.asked["topic"]] for message_id in settle.asked["ids"])
        mine = {id(settle), *map(id, others)}
        for handle in settle.asked["handles"]:
            delivery = facts.by_handle[handle]
            chain = facts.chains[delivery.group, delivery.message_id]
            if stored and chain[-1] is not delivery:
                yield "settled", f"{delivery.message_id} came again, though {settle.asked['ids'][0]} was sent for it"
            if not stored and not _done_otherwise(survey, chain, mine):
                yield "settled", f"{delivery.message_id} is gone, though {settle.asked['ids'][0]} was not sent for it"


def _done_otherwise(survey: Survey, chain: list[Delivery], mine: set[int]) -> bool:
    """Whether another call may have acked it, or it is a dead letter."""
    return chain[0].message_id in survey.dead[chain[0].group] or any(
        touch.kind == "ack" and touch.possible and id(touch.operation) not in mine
        for one in chain
        for touch in one.touches
    )
