"""A command that no handler, right or lane knows fails in the type checker, not in a run."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT

HEAD = """
from popmq_server.contract.commands import Ack, Acked, EveryOperation, Send
from popmq_server.contract.engine import Engine
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_ACK, Command, Handled
from popmq_server.contract.rights import ADMIN, Needs
from popmq_server.embedded.loop.broker import _EVERY
from popmq_server.embedded.rules.sending import send


class Right:
    def needs(self) -> Needs:
        return ADMIN


class New(Right, Command[int], lane=LANE_ACK):
    name: str

    def _is_listed(self) -> None: ...

"""

#: What somebody may write, and what the type checker says; "" = nothing.
SAMPLES = {
    "a command with everything": ("New('a')", ""),
    "no lane": ("class Bad(Right, Command[int]): ...", 'Missing named argument "lane"'),
    "no right": (
        "class Bad(Command[int], lane=LANE_ACK): ...\n\nBad()",
        'abstract attributes "_is_listed" and "needs"',
    ),
    "in no list": (
        "class Bad(Right, Command[int], lane=LANE_ACK): ...\n\nBad()",
        'abstract class "Bad" with abstract attribute "_is_listed"',
    ),
    "in the list under another name": (
        "class Bad(Right, Command[int], Listed['Bad'], lane=LANE_ACK): ...",
        'Type argument "Bad" of "Listed" must be a subtype of',
    ),
    "no handler": ("every: Handled[EveryOperation | New] = _EVERY", "Incompatible types in assignment"),
    "all handlers": ("every: Handled[EveryOperation] = _EVERY", ""),
    "a handler of another command": ("Ack.by(send.send)", 'Argument 1 to "by" of "Operation" has incompatible type'),
    "the type of its answer": (
        "async def ack(engine: Engine) -> Acked:\n    return await engine.execute(Ack('g', ()))",
        "",
    ),
    "another type of answer": (
        "async def ack(engine: Engine) -> int:\n    return await engine.execute(Ack('g', ()))",
        'has incompatible type "Ack"; expected "Command[int]"',
    ),
    "a field that it does not have": ("Send('t', (), sender='me')", 'Unexpected keyword argument "sender" for "Send"'),
    "a change of a command": ("Ack('g', ()).group = 'h'", 'Property "group" defined in "Ack" is read-only'),
}


@pytest.mark.slow
def test_the_type_checker_refuses_a_command_that_lacks_something(tmp_path: Path) -> None:
    files = []
    for number, (text, _) in enumerate(SAMPLES.values()):
        files.append(tmp_path / f"sample{number}.py")
        files[-1].write_text(HEAD + text + "\n")
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", *map(str, files)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert not checked.stderr
    found = {
        name: [line for line in checked.stdout.splitlines() if file.name in line and ": error:" in line]
        for file, name in zip(files, SAMPLES, strict=True)
    }
    for name, (_, said) in SAMPLES.items():
        assert len(found[name]) == (1 if said else 0), (name, found[name])
        assert all(said in line for line in found[name]), (name, found[name])
