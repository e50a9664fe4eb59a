"""The report of `popmq verify`: sentences for a terminal, and an HTML page without scripts.

The checker's claims are too many for a page: KINDS groups them into six kinds of defects that a user understands. The
page names the machine, the settings and the seed, so that a run can be repeated.
"""

from __future__ import annotations

import html
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from popmq_verify.stages import CUTS, LOAD_S, Outcome

#: Kind of a defect → the claims (checker.py) whose findings are of it. A claim that is not here is of the last kind.
KINDS = {
    "lost": ("lost", "changed"),
    "repeated": ("doubled", "after ack", "phantom", "sealed"),
    "overlapping": ("overlap", "handles"),
    "late or early": ("late", "early"),
    "out of order": ("order",),
    "counted or stored wrongly": ("attempts", "dead letters", "numbers", "settled", "store"),
}
MEANINGS = {
    "lost": "a message whose send was answered is gone, or came with other bytes",
    "repeated": "a message is stored twice, or came again after its ack was answered",
    "overlapping": "two clients of a group had the same message at the same time",
    "late or early": "a message came back before its lease was over, or long after",
    "out of order": "a message of a FIFO topic came before an earlier one of its message group was done",
    "counted or stored wrongly": "attempts, dead letters, numbers, half a settle, or what `popmq check` compares",
}
TITLES = {
    "kills": "the broker was killed (kill -9) under load",
    "power cuts": "the machine lost its power",
    "full disk": "there was no room for messages",
    "slow disk": "the disk was slow",
    "clock jumps": "the clock of the machine was set ahead and back",
}
#: Findings of a stage that are shown; one defect often has hundreds.
SHOWN_MAX = 20


def kind_of(claim: str) -> str:
    """The kind of a claim."""
    return next((kind for kind, claims in KINDS.items() if claim in claims), list(KINDS)[-1])


def count(outcomes: Iterable[Outcome], kind: str) -> int:
    """Findings of one kind."""
    return sum(kind_of(claim) == kind for outcome in outcomes for claim, _ in outcome.findings)


def sentence(outcomes: Sequence[Outcome]) -> str:
    """The verdict in one sentence."""
    ran = [outcome for outcome in outcomes if not outcome.skipped]
    if not ran:
        return "NOTHING TESTED: no stage could run on this machine."
    found = [f"{number:,} {kind}" for kind in KINDS if (number := count(outcomes, kind))]
    if found:
        return f"FAIL: {', '.join(found)}. Please report it with this page."
    left = ", ".join(outcome.name for outcome in outcomes if outcome.skipped)
    return "PASS: nothing lost, repeated, overlapping or late." + (f" Not tested here: {left}." if left else "")


def lengths(minutes: float) -> str:
    """How long the stages of such a run are, since a longer one finds more."""
    short = "; --minutes 30 has thirty times as much" if minutes <= 1 else ""
    return f"{LOAD_S['kills'] * minutes:.0f} s of kills and {CUTS * max(1, round(minutes))} power cuts{short}"


def lines(outcome: Outcome) -> list[str]:
    """One stage, for a terminal."""
    state = "skipped" if outcome.skipped else "FAIL" if outcome.findings else "pass"
    rows = [f"{state:<8}{outcome.name} ({outcome.seconds:.0f} s): {outcome.skipped or TITLES[outcome.name]}"]
    rows += [f"          {value:>10,}  {name}" for name, value in outcome.figures.items()]
    rows += [f"          {note}" for note in outcome.notes]
    return rows + [f"        ✗ {kind_of(claim)}: {text}" for claim, text in outcome.findings[:SHOWN_MAX]]


def page(outcomes: Sequence[Outcome], settings: str, seed: int) -> str:
    """The HTML page."""
    verdict = sentence(outcomes)
    when = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    machine = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    kinds = "".join(
        f"<tr><td>{kind}</td><td class=n>{count(outcomes, kind):,}</td><td>{html.escape(MEANINGS[kind])}</td></tr>"
        for kind in KINDS
    )
    return _PAGE.format(
        state=verdict.partition(":")[0].split()[0].lower(),
        verdict=html.escape(verdict),
        facts=html.escape(f"{when} · {machine} · settings: {settings} · seed {seed}"),
        kinds=kinds,
        stages="".join(map(_section, outcomes)),
    )


def write(path: Path, outcomes: Sequence[Outcome], settings: str, seed: int) -> None:
    """Writes the page. Raises OSError."""
    path.write_text(page(outcomes, settings, seed), "utf-8")  # as the page says of itself


def _section(outcome: Outcome) -> str:
    """One stage of the HTML page: its state, figures, notes and the first SHOWN_MAX findings."""
    state = "skipped" if outcome.skipped else "fail" if outcome.findings else "pass"
    rows = "".join(
        f"<tr><td class=n>{value:,}</td><td>{html.escape(name)}</td></tr>" for name, value in outcome.figures.items()
    )
    paragraphs = "".join(f"<p>{html.escape(text)}</p>" for text in (outcome.skipped, *outcome.notes) if text)
    items = "".join(
        f"<li><strong>{kind_of(claim)}</strong>: {html.escape(text)}</li>"
        for claim, text in outcome.findings[:SHOWN_MAX]
    )
    more = len(outcome.findings) - SHOWN_MAX
    return (
        f"<section><h2><span class={state}>{state}</span> {html.escape(outcome.name)}</h2>"
        f"<p>{html.escape(TITLES[outcome.name])}; {outcome.seconds:.0f} s</p>"
        f"{paragraphs}<table>{rows}</table><ul>{items}"
        f"{f'<li>and {more:,} more</li>' if more > 0 else ''}</ul></section>"
    )


_PAGE = """<!doctype html>
<html lang=en><meta charset=utf-8><meta name=viewport content="width=device-width"><title>popmq verify</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }}
h1 span, h2 span {{ font-size: .8em; padding: .1em .5em; border-radius: .3em; color: #fff; background: #555; }}
.pass, .PASS {{ background: #176f34 !important; }} .fail {{ background: #b3261e !important; }}
table {{ border-collapse: collapse; }} td {{ padding: .15rem .8rem .15rem 0; vertical-align: top; }}
.n {{ text-align: right; font-variant-numeric: tabular-nums; }} .facts {{ opacity: .75; }}
section {{ border-top: 1px solid #8886; margin-top: 1.5rem; }} li {{ overflow-wrap: anywhere; }}
</style>
<h1><span class={state}>popmq verify</span></h1>
<p><strong>{verdict}</strong></p>
<p class=facts>{facts}</p>
<table>{kinds}</table>
{stages}
</html>
"""
