"""Judges the reads of owners: a token always gives the same set, and the epochs together give the topic once.

_tokens   each Pop under a token returns the rows that the first one returned, in their order
_orders   generations grow, and an acked epoch stays acked
_sum      the sets of all tokens together are the messages of the topic, each once, all acked
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from popmq_verify.judging.checker import Finding
from popmq_verify.judging.facts import Survey
from popmq_verify.load.history import History
from popmq_verify.load.reader import GROUP, TOPIC

Token = tuple[int, int, int]  # epoch, part, chunk


def check(history: History, survey: Survey) -> list[Finding]:
    """Every contradiction; the reader must have come to its end."""
    sets: dict[Token, list[Any]] = {}
    findings = [("sealed", sentence) for sentence in _tokens(history, sets)]
    findings += [("sealed", sentence) for sentence in _orders(history)]
    return findings + [("sealed", sentence) for sentence in _sum(sets, survey, _answered(history))]


def _tokens(history: History, sets: dict[Token, list[Any]]) -> Iterator[str]:
    """The same token gives the same rows in the same order, also after a restart, a new attach or an expired lease."""
    for pop in history.of("token"):
        if not pop.ok:
            continue
        token = (pop.asked["epoch"], pop.asked["part"], pop.asked["chunk"])
        told = [pop.told["rows"], pop.told["end"]]
        if sets.setdefault(token, told) != told:
            yield f"token {token}: {len(sets[token][0])} rows at first, {len(told[0])} or others later"
        if pop.told["torn"]:
            yield f"token {token} is torn, although no other client reads this group"


def _orders(history: History) -> Iterator[str]:
    """Generations grow with each attach; an answered AckUpTo is never forgotten."""
    generation = acked = 0
    for operation in history.operations:
        if operation.kind == "attach" and operation.ok:
            if operation.told["generation"] <= generation:
                yield f"generation {operation.told['generation']} was issued after {generation}"
            if operation.told["acked_epoch"] < acked:
                yield f"epoch {acked} was acked, later only {operation.told['acked_epoch']}"
            generation = operation.told["generation"]
        elif operation.kind == "ack_upto" and operation.ok:
            acked = max(acked, operation.asked["epoch"])


def _answered(history: History) -> set[tuple[Any, ...]]:
    """Where the messages of answered Sends lie, or lay."""
    sends = [send for send in history.of("send") if send.ok and send.asked["topic"] == TOPIC]
    places = [zip(send.asked["ids"], send.told["results"], strict=True) for send in sends]
    return {(message_id, *place) for pairs in places for message_id, place in pairs}


def _sum(sets: dict[Token, list[Any]], survey: Survey, answered: set[tuple[Any, ...]]) -> Iterator[str]:
    """All tokens together are the topic: each message once, none that was not stored, and all of them acked."""
    stored = answered | {
        (message_id, *place) for message_id, places in survey.stored[TOPIC].items() for place in places
    }
    rows = [tuple(row) for told in sets.values() for row in told[0]]
    if len(rows) != len(set(rows)):
        yield f"{len(rows) - len(set(rows))} messages are in two tokens"
    if missing := stored - set(rows):
        yield f"{len(missing)} of {len(stored)} messages are in no epoch, such as {min(missing)}"
    if (ghosts := set(rows) - stored) and not survey.dropping:
        yield f"{len(ghosts)} messages of epochs are not in the topic, such as {min(ghosts)}"
    stats = survey.stats[GROUP, TOPIC]
    left = {name: stats[name] for name in ("ready", "in_flight", "retry", "backoff", "dead") if stats[name]}
    count = len(stored | set(rows))
    if left or stats["acked"] != count:
        yield f"{stats['acked']} of {count} messages are acked, and there is {left}"
