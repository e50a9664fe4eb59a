"""Lies: a sound history is changed as if the broker had broken one promise. Both judges must find each.

Every lie takes the lines of a form (form.py) and gives other lines; it raises LookupError if the history has nothing of
the kind to lie about. A lie is only about what clients were told, never about a survey that no broker could have.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.jepsen.form import Line

Lie = Callable[[list[Line], random.Random], None]
NS_PER_MS = 1_000_000


class Given(NamedTuple):
    """One row of an answer to a pop: the pop's line, and the number of the row."""

    pop: Line
    number: int

    @property
    def row(self) -> list[Any]:
        """id, handle, attempt, queue, offset, intact."""
        found: list[Any] = self.pop["told"]["rows"][self.number]
        return found


def told(lines: list[Line], lie: Lie, seed: int) -> list[Line]:
    """The history with one lie in it."""
    changed = copy.deepcopy(lines)
    lie(changed, random.Random(seed))
    return changed


def _ops(lines: list[Line], kind: str) -> list[Line]:
    """The answered operations of a kind."""
    return [line for line in lines if line.get("op") == kind and line["how"] == "ok"]


def _given(lines: list[Line]) -> Iterator[Given]:
    """Every row that is not of a replay."""
    for pop in _ops(lines, "pop"):
        if not pop["told"]["replay"]:
            yield from (Given(pop, number) for number in range(len(pop["told"]["rows"])))


def _acked(lines: list[Line]) -> dict[str, Line]:
    """Handle → the ack of it that was answered as done."""
    return {
        handle: ack
        for ack in _ops(lines, "ack")
        for handle, code in zip(ack["asked"]["handles"], ack["told"]["codes"], strict=True)
        if code == 0
    }


def _touched(lines: list[Line]) -> set[str]:
    """All handles that a change or a settle named."""
    changes = (change[0] for line in lines if line.get("op") == "change" for change in line["asked"]["changes"])
    settled = (handle for line in lines if line.get("op") == "settle" for handle in line["asked"]["handles"])
    return {*changes, *settled}


def _plain(lines: list[Line]) -> list[Given]:
    """First deliveries of messages outside of FIFO topics that the same client acked in time and no other call named;
    nobody but this delivery ended them.
    """
    acked, touched = _acked(lines), _touched(lines)
    ordered = {one for send in _ops(lines, "send") if send["asked"]["message_group"] for one in send["asked"]["ids"]}
    answered = {one for send in _ops(lines, "send") for one in send["asked"]["ids"]}
    times: dict[tuple[str, str], int] = {}
    for line in lines:
        if line.get("op") == "pop":
            for row in line["told"].get("rows", ()):
                times[line["asked"]["group"], row[0]] = times.get((line["asked"]["group"], row[0]), 0) + 1
    return [
        one
        for one in _given(lines)
        if one.row[1] in acked
        and one.row[1] not in touched
        and one.row[0] in answered - ordered
        and times[one.pop["asked"]["group"], one.row[0]] == 1
    ]


def _again(lines: list[Line], one: Given, after_ms: int, handle: str, attempt: int) -> None:
    """One more delivery of a message, so long after the first one was popped."""
    pop, later = copy.deepcopy(one.pop), after_ms * NS_PER_MS
    pop |= {"client": "liar", "call": pop["call"] + later, "return": pop["return"] + later}
    pop["asked"] |= {"attempt_id": ""}
    pop["told"] |= {"popped_ms": pop["told"]["popped_ms"] + after_ms, "until_ms": pop["told"]["until_ms"] + after_ms}
    pop["told"]["rows"] = [[*one.row[:1], handle, attempt, *one.row[3:]]]
    lines.append(pop)
    call = pop["return"] + NS_PER_MS
    ack = {"op": "ack", "client": "liar", "call": call, "return": call + NS_PER_MS, "how": "ok"}
    ack |= {"asked": {"group": one.pop["asked"]["group"], "handles": [handle]}, "told": {"codes": [0]}}
    lines.append(ack)


def _without(line: Line, number: int, asked: str, answered: str) -> None:
    """Removes one entry of a request, and its answer."""
    del line["asked"][asked][number]
    if answered in line["told"]:
        del line["told"][answered][number]


def _one(found: list[Any], chance: random.Random) -> Any:
    """One of these. Raises LookupError if there is none."""
    if not found:
        raise LookupError("this history has nothing to lie about")
    return chance.choice(found)


def lost(lines: list[Line], chance: random.Random) -> None:
    """A message whose send was answered is not there, and no group ever got it."""
    send = _one([one for one in _ops(lines, "send") if one["asked"]["ids"]], chance)
    _forget(lines, chance.choice(send["asked"]["ids"]))


def _forget(lines: list[Line], gone: str) -> None:
    """Takes a message out of all answers and out of the survey."""
    handles = {one.row[1] for one in _given(lines) if one.row[0] == gone}
    for line in lines:
        if line.get("op") == "pop" and "rows" in line["told"]:
            line["told"]["rows"] = [row for row in line["told"]["rows"] if row[0] != gone]
        for number in reversed(range(len(line.get("asked", {}).get("handles", ())))):
            if line["asked"]["handles"][number] in handles:
                _without(line, number, "handles", "codes")
        for number in reversed(range(len(line.get("asked", {}).get("changes", ())))):
            if line["asked"]["changes"][number][0] in handles:
                _without(line, number, "changes", "results")
    lines[:] = [line for line in lines if line.get("id") != gone]


def never_delivered(lines: list[Line], chance: random.Random) -> None:
    """A message is stored, and one group never got it."""
    one = _one(_plain(lines), chance)
    ack = _acked(lines)[one.row[1]]
    _without(ack, ack["asked"]["handles"].index(one.row[1]), "handles", "codes")
    replays = [line for line in lines if line.get("op") == "pop" and line is not one.pop]
    handle = one.row[1]
    for pop in (one.pop, *replays):
        pop["told"]["rows"] = [row for row in pop["told"].get("rows", ()) if row[1] != handle]


def repeated(lines: list[Line], chance: random.Random) -> None:
    """A message comes again, long after its ack was answered."""
    one = _one(_plain(lines), chance)
    _again(lines, one, 60_000, "lie", one.row[2] + 1)


def stored_twice(lines: list[Line], chance: random.Random) -> None:
    """A message is stored at two places."""
    line = _one([line for line in lines if line.get("end") == "stored"], chance)
    line["positions"].append([line["positions"][0][0], line["positions"][0][1] + 1_000_000])


def phantom(lines: list[Line], chance: random.Random) -> None:
    """A message is delivered that nobody sent."""
    one = _one(_plain(lines), chance)
    _again(
        lines,
        Given(copy.deepcopy(one.pop) | {"told": one.pop["told"] | {"rows": [["ghost", *one.row[1:]]]}}, 0),
        0,
        "lie",
        1,
    )


def changed(lines: list[Line], chance: random.Random) -> None:
    """A body is another one."""
    _one(list(_given(lines)), chance).row[5] = False


def early(lines: list[Line], chance: random.Random) -> None:
    """A message is given to a second client while the first one has it."""
    one = _one([one for one in _plain(lines) if _acked(lines)[one.row[1]]["call"] > one.pop["return"]], chance)
    ack = _acked(lines)[one.row[1]]
    _without(ack, ack["asked"]["handles"].index(one.row[1]), "handles", "codes")
    _again(lines, one, 500, "lie", one.row[2] + 1)


def early_release(lines: list[Line], chance: random.Random) -> None:
    """A released message comes before its delay is over."""
    found = []
    handles = {one.row[1]: one for one in _plain_or_more(lines)}
    for change in _ops(lines, "change"):
        for number, (asked, result) in enumerate(
            zip(change["asked"]["changes"], change["told"]["results"], strict=True)
        ):
            if asked[1] == "release" and result[0] == 0 and not result[2] and asked[0] in handles:
                found.append((change, number, handles[asked[0]]))
    change, number, one = _one(found, chance)
    later = [
        o for o in _given(lines) if o.row[0] == one.row[0] and o.pop["asked"]["group"] == one.pop["asked"]["group"]
    ]
    after = min(o.pop["told"]["popped_ms"] for o in later if o.pop["told"]["popped_ms"] > one.pop["told"]["popped_ms"])
    change["told"]["results"][number][1] = after + 700


def _plain_or_more(lines: list[Line]) -> list[Given]:
    """Deliveries of messages outside of FIFO topics."""
    ordered = {
        one
        for send in lines
        if send.get("op") == "send" and send["asked"]["message_group"]
        for one in send["asked"]["ids"]
    }
    return [one for one in _given(lines) if one.row[0] not in ordered]


def late(lines: list[Line], chance: random.Random) -> None:
    """An ack is accepted long after the lease has ended, though the broker answered others all the time."""
    one = _one([one for one in _plain(lines) if len(_acked(lines)[one.row[1]]["asked"]["handles"]) == 1], chance)
    ack = _acked(lines)[one.row[1]]
    until_ns = one.pop["told"]["until_ms"] * NS_PER_MS - lines[0]["wall_minus_monotonic_ns"]
    ack["call"], ack["return"] = until_ns + 8_000 * NS_PER_MS, until_ns + 8_001 * NS_PER_MS
    first = min(line["call"] for line in lines if "op" in line)
    for step in range(200):  # others are answered meanwhile
        call = max(first, one.pop["call"]) + step * 100 * NS_PER_MS
        asked = {"topic": one.pop["asked"]["topic"], "group": one.pop["asked"]["group"], "attempt_id": ""}
        answer = {"popped_ms": 0, "until_ms": 0, "replay": False, "rows": []}
        lines.append(
            {
                "op": "pop",
                "client": "other",
                "call": call,
                "return": call + 1,
                "how": "ok",
                "asked": asked,
                "told": answer,
            }
        )


def ack_forgotten(lines: list[Line], chance: random.Random) -> None:
    """An ack was answered, and the message comes again when its lease is over."""
    one = _one(_plain(lines), chance)
    lease_ms = one.pop["told"]["until_ms"] - one.pop["told"]["popped_ms"]
    _again(lines, one, lease_ms + 100, "lie", one.row[2] + 1)


def extend_ignored(lines: list[Line], chance: random.Random) -> None:
    """An extend was answered, and the message comes again when the first lease is over."""
    one = _one([one for one in _plain(lines) if _ms(one) < 5_000], chance)
    ack = _acked(lines)[one.row[1]]
    _without(ack, ack["asked"]["handles"].index(one.row[1]), "handles", "codes")
    until_ms = one.pop["told"]["until_ms"]
    call = one.pop["return"] + 1
    extend = {"op": "change", "client": one.pop["client"], "call": call, "return": call + 1, "how": "ok"}
    extend["asked"] = {"group": one.pop["asked"]["group"], "changes": [[one.row[1], "extend", 60_000, False]]}
    extend["told"] = {"results": [[0, until_ms + 60_000, False]]}
    lines.append(extend)
    _again(lines, one, _ms(one) + 200, "lie", one.row[2] + 1)


def _ms(one: Given) -> int:
    """The length of its lease."""
    length: int = one.pop["told"]["until_ms"] - one.pop["told"]["popped_ms"]
    return length


def attempt_skipped(lines: list[Line], chance: random.Random) -> None:
    """A first delivery says that it is the third."""
    unseen = {
        (line["asked"]["group"], line["asked"]["topic"])
        for line in lines
        if line.get("op") == "pop" and line["how"] == "unknown"
    }
    first = [one for one in _plain(lines) if (one.pop["asked"]["group"], one.pop["asked"]["topic"]) not in unseen]
    _one(first or _plain(lines), chance).row[2] = 40


def moved(lines: list[Line], chance: random.Random) -> None:
    """A repeated request is answered with another place."""
    send = _one([one for one in _ops(lines, "send") if one["told"]["duplicate"]], chance)
    for result in send["told"]["results"]:
        result[1] += 1_000_000


def reordered(lines: list[Line], chance: random.Random) -> None:
    """Two neighbours in a message group change places: the second is delivered before the first."""
    names = {one: send["asked"]["message_group"] for send in _sends(lines) for one in send["asked"]["ids"]}
    seen: dict[tuple[str, str, str], list[Given]] = {}
    for one in _given(lines):
        if names.get(one.row[0]):
            seen.setdefault((one.pop["asked"]["group"], names[one.row[0]], one.row[0]), []).append(one)
    once = [(*key[:2], found[0]) for key, found in seen.items() if len(found) == 1]
    once.sort(key=lambda one: (one[0], one[1], one[2].row[4]))
    first, second = _one(
        [
            (before, after)
            for (*line, before), (*other, after) in pairwise(once)
            if line == other and before.pop is not after.pop and before.row[4] + 1 == after.row[4]
        ],
        chance,
    )
    for place in (0, 3, 4):
        first.row[place], second.row[place] = second.row[place], first.row[place]


def _sends(lines: list[Line]) -> list[Line]:
    """All sends, answered or not."""
    return [line for line in lines if line.get("op") == "send"]


def settle_forgotten(lines: list[Line], chance: random.Random) -> None:
    """A settle was answered, and one of its deliveries comes again when its lease is over."""
    settle = _one([one for one in _ops(lines, "settle") if one["asked"]["handles"]], chance)
    handle = chance.choice(settle["asked"]["handles"])
    one = next(one for one in _given(lines) if one.row[1] == handle)
    _again(lines, one, _ms(one) + 100, "lie", one.row[2] + 1)


def half_settled(lines: list[Line], chance: random.Random) -> None:
    """A settle has no answer; what it acked is gone, and what it was to send is not there."""
    numbers = [one["asked"]["number"] for one in lines if one.get("op") == "settle"]
    settle = _one([one for one in _ops(lines, "settle") if numbers.count(one["asked"]["number"]) == 1], chance)
    settle |= {"how": "unknown", "told": {}}
    _forget(lines, settle["asked"]["ids"][0])


LIES: dict[str, Lie] = {
    lie.__name__.replace("_", " "): lie
    for lie in (
        lost,
        never_delivered,
        repeated,
        stored_twice,
        phantom,
        changed,
        early,
        early_release,
        late,
        ack_forgotten,
        extend_ignored,
        attempt_skipped,
        moved,
        reordered,
        settle_forgotten,
        half_settled,
    )
}
