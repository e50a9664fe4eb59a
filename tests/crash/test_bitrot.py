"""One flipped bit, anywhere in the data file: nothing wrong is delivered as right, and nothing is lost in silence."""

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.bitrot import BUSY
from tests.crash.conftest import Scale


@pytest.mark.chaos
def test_a_flipped_bit_is_found_and_its_message_is_never_delivered(
    tmp_path: Path, scale: Scale, show: Callable[[str], None]
) -> None:
    count = scale.pick(short=40, whole=10_000)
    command = [
        sys.executable,
        "-m",
        "tests.crash.bitrot",
        str(tmp_path),
        str(scale.pick(short=1, whole=scale.seed)),
        str(count),
    ]
    lines = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=Path(__file__).parents[2]).stdout
    seen = [json.loads(line) for line in lines.splitlines()]
    kinds = Counter(_kind(flip) for flip in seen)
    show("\n".join(f"{number:7,}  {kind}" for kind, number in kinds.most_common()))
    assert len(seen) == count
    assert not [flip for flip in seen if flip["wrong"]]
    # A signal may end a broker once; the start after it refuses, and what was repaired does not end it again.
    assert not [flip for flip in seen if flip["ended"] not in BUSY]
    assert not [flip for flip in seen if flip["signal"] and "ended by a signal" not in flip["start"]]
    assert not [flip for flip in seen if not flip["found"] and (flip["ended"] or flip["error"] or flip["lost"])]
    # A campaign that met nothing proves nothing.
    assert any(flip["found"] for flip in seen)
    assert any(flip["signal"] for flip in seen)


def _kind(flip: dict[str, object]) -> str:
    found = "found by popmq check" if flip["found"] else "not found, changes nothing"
    if flip["signal"]:
        return f"{found}; the broker ends once by a signal, the next start refuses, repaired"
    after = "repaired, " if flip["repaired"] else ""
    if flip["ended"]:
        return f"{found}; the broker stays busy"
    if flip["error"]:
        return f"{found}; {after}a group gets an error"
    return (
        f"{found}; {after}{'some messages are lost' if flip.get('lost') else 'all messages delivered or quarantined'}"
    )
