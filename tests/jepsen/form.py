"""The form in which both judges read a history: docs/contributing/histories.md describes it.

the recorder's files  ──▶  operations ┐
the survey at rest    ──▶  ends       ┴─▶ one file of JSON lines ─▶ checker, Porcupine
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from popmq_verify.judging.checker import Finding, check
from popmq_verify.judging.facts import DeadLetter, Facts, Survey
from popmq_verify.load.history import NEVER, History, Operation

FORM = 1
#: The kinds of operations that the form knows; others of a campaign (an owner's, deleted topics) are judged elsewhere.
KINDS = ("send", "pop", "ack", "change", "settle")
Line = dict[str, Any]


def lines_of(history: History, survey: Survey) -> Iterator[Line]:
    """The lines of a history: the head, its operations in the order of their calls, and what is there at the end."""
    yield {
        "form": FORM,
        "wall_minus_monotonic_ns": history.wall_minus_monotonic_ns,
        "max_attempts": survey.max_attempts,
        "dropping": survey.dropping,
    }
    for one in history.operations:
        if one.kind in KINDS:
            returned = None if one.returned_ns == NEVER else one.returned_ns
            times = {"client": one.client, "call": one.called_ns, "return": returned}
            yield {"op": one.kind, **times, "how": one.how, "asked": one.asked, "told": one.told}
    for topic, stored in survey.stored.items():
        yield {"end": "topic", "topic": topic}
        for message_id, positions in stored.items():
            yield {"end": "stored", "topic": topic, "id": message_id, "positions": [list(one) for one in positions]}
    for group, dead in survey.dead.items():
        yield {"end": "group", "group": group}
        for message_id, letters in dead.items():
            yield {"end": "dead", "group": group, "id": message_id, "copies": [_copied(one) for one in letters]}
    for (group, topic), numbers in survey.stats.items():
        counts = {name: number for name, number in numbers.items() if isinstance(number, int)}
        yield {"end": "numbers", "group": group, "topic": topic, "numbers": counts}


def _copied(letter: DeadLetter) -> Line:
    """A dead letter as JSON has it."""
    return asdict(letter) | {"position": list(letter.position)}


def write(file: Path, lines: list[Line]) -> None:
    """Writes lines as JSON."""
    file.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def read(file: Path) -> list[Line]:
    """The lines of a file."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def parsed(lines: list[Line]) -> tuple[History, Survey]:
    """A history and a survey of their lines. Raises ValueError for a form that this module does not know."""
    head, *rest = lines
    if head.get("form") != FORM:
        raise ValueError(f"form {head.get('form')!r} is not {FORM}")
    survey = Survey(max_attempts=head["max_attempts"], dropping=head["dropping"])
    operations = []
    for line in rest:
        if "op" in line:
            returned = NEVER if line["return"] is None else line["return"]
            fields = (line["op"], line["client"], line["call"], line["asked"], returned, line["how"], line["told"])
            operations.append(Operation(*fields))
        elif line["end"] == "topic":
            survey.stored[line["topic"]] = {}
        elif line["end"] == "stored":
            positions = [(queue, offset) for queue, offset in line["positions"]]
            survey.stored[line["topic"]][line["id"]] = positions
        elif line["end"] == "group":
            survey.dead[line["group"]] = {}
        elif line["end"] == "dead":
            copies = [DeadLetter(**one | {"position": tuple(one["position"])}) for one in line["copies"]]
            survey.dead[line["group"]][line["id"]] = copies
        else:
            survey.stats[line["group"], line["topic"]] = line["numbers"]
    operations.sort(key=lambda one: one.called_ns)
    return History(operations, head["wall_minus_monotonic_ns"]), survey


def judged_here(lines: list[Line]) -> list[Finding]:
    """What the project's own checker finds in a history of the form."""
    history, survey = parsed(lines)
    return check(Facts(history), survey)
