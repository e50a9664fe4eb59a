"""Dead letters: how many each group has, why they died, and delivering them again: one, some, or all that fit a filter.

a filter ──▶ the page looks at SCAN_MAX dead letters at most, then offers to go on from there
all      ──▶ redrives.py, in pieces; this page shows how far it is
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import popmq
from popmq_console.asking import Ask, Outcome, tried, whole, wrong
from popmq_console.numbers import by_group
from popmq_console.redrives import PIECE, Redrive, dead_letter_topic, fits, queues_of
from popmq_console.sorting import Columns, ordered
from popmq_console.views import address, counted, paged

SHOWN = 50
REASONS_SHOWN = 20
#: Dead letters that one page reads to find those that match.
SCAN_MAX = 5_000


GROUPS: Columns[tuple[str, int]] = {
    "Group": lambda pair: pair[0],
    "Dead letters#": lambda pair: pair[1],
    "Being delivered again": None,
}


async def groups(ask: Ask) -> dict[str, Any]:
    """The groups that have dead letters, those with most first."""
    rows = by_group((await ask.login.numbers.stats()).groups)
    counts = [(name, max(row.dead for row in group)) for name, group in rows.items()]
    listed = sorted(((name, dead) for name, dead in counts if dead), key=lambda pair: (-pair[1], pair[0]))
    order = ordered(listed, GROUPS, ask.value("sort"))
    return {"rows": paged(order.items, ask.value("page")), "order": order, "redrives": ask.login.redrives}


class Scanned(NamedTuple):
    """What a page found. `following`: (queue, offset) after the last one that it shows; None: there are no more.

    `fitting`: how many fit of those that it looked at; `whole`: whether these were all of the group.
    """

    deliveries: list[popmq.Delivery]
    following: tuple[int, int] | None
    fitting: int
    whole: bool


async def of_group(ask: Ask) -> dict[str, Any]:
    """The dead letters of one group from an offset on. Raises GroupNotFound, TopicNotFound.

    Its list is made once; only the progress of a redrive is refreshed.
    """
    group, origin, reason = ask.value("group"), ask.value("origin"), ask.value("reason")
    found = Scanned([], None, 0, True) if ask.live else await _scan(ask, group, origin, reason)
    first_page = not (ask.live or origin or reason or ask.value("offset")) and ask.login.has("dead_letter_reasons")
    reasons = (await tried(ask.client.dead_letters.reasons(group), []))[0] if first_page else []
    rows = by_group((await ask.login.numbers.stats()).groups).get(group, [])
    total = max((row.dead for row in rows), default=0)
    return {
        "group": group,
        "origin": origin,
        "reason": reason,
        "letters": found.deliveries,
        "following": found.following and dict(zip(("queue", "offset"), found.following, strict=True)),
        "reasons": reasons[:REASONS_SHOWN],
        "exceptions": _exceptions(reasons)[:REASONS_SHOWN],
        "more_reasons": max(len(reasons) - REASONS_SHOWN, 0),
        "fitting": (found.fitting, found.whole) if origin or reason else (total, True),
        "is_first": not ask.value("offset"),
        "total": total,
        "topic": dead_letter_topic(group),
        "redrive": ask.login.redrives.get(group),
    }


class Exceptional(NamedTuple):
    """The dead letters whose reasons begin with one exception. `reasons`: how many different ones."""

    exception: str
    messages: int
    reasons: int
    first_ms: int
    last_ms: int


def _exceptions(reasons: Sequence[popmq.DeadLetterReason]) -> list[Exceptional]:
    """Those that several reasons have: of the others the reason says enough."""
    alike: dict[str, list[popmq.DeadLetterReason]] = {}
    for each in reasons:
        alike.setdefault(each.exception, []).append(each)
    found = [
        Exceptional(
            exception,
            sum(each.messages for each in some),
            len(some),
            min(each.first_ms for each in some),
            max(each.last_ms for each in some),
        )
        for exception, some in alike.items()
        if exception and len(some) > 1
    ]
    return sorted(found, key=lambda each: (-each.messages, each.exception))


async def _scan(ask: Ask, group: str, origin: str, reason: str) -> Scanned:
    """Looks at SCAN_MAX dead letters, to count those that fit a filter; without one, at those that it shows."""
    topic, begin = dead_letter_topic(group), (ask.place("queue"), ask.place("offset"))
    piece = PIECE if origin or reason else SHOWN
    shown: list[popmq.Delivery] = []
    following, fitting, looked_at = None, 0, 0
    left = [queue for queue in await queues_of(ask.client, group, ask.login.is_cluster) if queue >= begin[0]]
    at = begin if left[:1] == [begin[0]] else (left[0], 0) if left else None
    while at is not None:
        page = await ask.client.messages.browse(topic, *at, piece)
        for one in page.deliveries:
            if fits(one, origin, reason):
                fitting += 1
                if len(shown) < SHOWN:
                    shown.append(one)
                elif following is None:
                    following = shown[-1].queue, shown[-1].offset + 1
        looked_at += max(1, len(page.deliveries))
        at = _after(at, page, left)
        if at is not None and (looked_at >= SCAN_MAX or (piece == SHOWN and len(shown) == SHOWN)):
            return Scanned(shown, following or at, fitting, False)
    return Scanned(shown, following, fitting, begin == (0, 0))


def _after(at: tuple[int, int], page: popmq.Page, queues: list[int]) -> tuple[int, int] | None:
    """Where the next piece begins: in this queue, or in the next one; None behind the last."""
    queue, offset = at
    if offset < page.next_offset < page.max_offset:
        return queue, page.next_offset
    return next(((other, 0) for other in queues if other > queue), None)


def page_of(group: str, origin: str = "", reason: str = "") -> str:
    """The address of a group's dead letters."""
    return address("/dead-letters/group", group=group, origin=origin, reason=reason)


async def redrive(ask: Ask) -> Outcome:
    """Delivers the dead letters again whose boxes are ticked. Raises InvalidField, GroupNotFound."""
    group = ask.given("group")
    done = await ask.client.dead_letters.redrive(group, *_ticked(ask))
    failed = f" {len(done.failures):,} are not: {done.failures[0].error}" if done.failures else ""
    return Outcome(f"Delivered again: {counted(done.redriven, 'dead letter')}.{failed}", ask.back(page_of(group)))


async def discard(ask: Ask) -> Outcome:
    """Removes the dead letters whose boxes are ticked, or all of one reason or exception.

    Raises InvalidField, GroupNotFound.
    """
    group, by_reason, exception = ask.given("group"), "reason" in ask.form, ask.given("exception")
    reason = next(iter(ask.form["reason"])) if by_reason else None
    offsets, topic, ids = ([], "", []) if by_reason or exception else _ticked(ask)
    done = await ask.client.dead_letters.discard(group, offsets, topic, ids, reason, exception)
    failed = f" {len(done.failures):,} are not: {done.failures[0].error}" if done.failures else ""
    return Outcome(f"Discarded: {counted(done.discarded, 'dead letter')}.{failed}", ask.back(page_of(group)))


def _ticked(ask: Ask) -> tuple[list[int], str, list[str]]:
    """The ticked boxes as the SDK takes them: offsets, any topic, ids; as many as one call takes. Raises InvalidField.

    Boxes have ids where several queues have offsets of their own.
    """
    offsets = [offset for text in ask.form.get("offset", ()) if (offset := whole(text)) is not None]
    ids = [text for text in ask.form.get("id", ()) if text]
    if not (offsets or ids):
        raise wrong("offset", "tick the dead letters that are meant")
    return offsets[:4096], "", ids[:4096]


async def redrive_all(ask: Ask) -> Outcome:
    """Begins to deliver all again that fit the filter; the page shows the progress. Raises InvalidField."""
    group, origin, reason = ask.given("group"), ask.given("origin"), ask.given("reason")
    running = ask.login.redrives.get(group)
    if running and running.running:
        raise wrong("group", f"dead letters of {group} are being delivered already: wait until that is done")
    await ask.client.groups.get(group)
    order = ask.login.redrives[group] = Redrive(ask.client, group, origin, reason, ask.login.is_cluster)
    order.start()
    return Outcome(f"Dead letters of {group} are being delivered again.", page_of(group, origin, reason))


async def stop(ask: Ask) -> Outcome:
    """Ends an order between two pieces."""
    group = ask.given("group")
    if order := ask.login.redrives.get(group):
        await order.stop()
    return Outcome("Stopped. Messages that were delivered again stay so.", ask.back(page_of(group)))
