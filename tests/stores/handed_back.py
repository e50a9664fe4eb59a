"""Stores of earlier releases are opened by this one, used, and handed back: then that release serves them, or refuses.

    python -m tests.stores.handed_back [NAME …]     a table; needs the history of the repository

    a store of the release ─▶ this release sends, pops, acks, releases, is killed, stops ─▶ a copy of it is drained
                                                                        └─▶ the release drains it: the same messages

No release was published yet, so a release is a commit: the last one of each format, and of format 4 the first one and
the last one without a journal.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from tests.engine.rig import HOUR, SECOND, Rig
from tests.stores import drain
from tests.stores.kept import KEPT, put
from tests.stores.make import ROOMS, ROOT, check_out

ROUNDS = 150


class Release(NamedTuple):
    """`writes`: the format of its stores. `refuses`: what it says of a store that this release has opened; "": nothing,
    it serves it. `journaled`: this release uses a journal, and is killed.
    """

    commit: str
    writes: int
    refuses: str = ""
    journaled: bool = False


RELEASES = {
    "last of format 1": Release("9f07406^", 1, "store format 3"),
    "last of format 2": Release("93b55c5", 2, "store format 3"),
    "last of format 3": Release("0238fcf3^", 3),
    "first of format 4": Release("0238fcf3", 4),
    "last without a journal": Release("222ac510^", 4),
    "the same, journal of a killed broker": Release("222ac510^", 4, "store format 132", journaled=True),
}


class Handed(NamedTuple):
    """`told`: what the release made of it. `wanted`: what this one made of a copy. `used`: operations of this one."""

    told: dict[str, Any]
    wanted: dict[str, Any]
    used: int


def has_history(release: Release) -> bool:
    """Whether the commit is there: a shallow clone has few."""
    command = ["git", "cat-file", "-e", release.commit + "^{commit}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, check=False).returncode == 0


def handed_back(release: Release, scratch: Path, seed: int = 1) -> Handed:
    """One release, from its store to its own verdict."""
    code, data = scratch / "code", scratch / "data"
    code.mkdir()
    check_out(release.commit, code)
    if release.writes in KEPT:
        put(data, release.writes)
    else:  # as the release kept its own stores
        _run(code, code / "tests" / "stores" / "fill.py", data, str(max(KEPT))).check_returncode()
    used = use(data, random.Random(seed), release.journaled)
    shutil.copytree(data, scratch / "copy")
    done = _run(code, Path(drain.__file__), data)
    if done.returncode:
        return Handed({"failed": done.stderr[-2000:]}, {}, used)
    return Handed(json.loads(done.stdout.splitlines()[-1]), drain.drained(scratch / "copy"), used)


def _run(code: Path, program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs a program with the code of a release."""
    command = [sys.executable, str(program), *map(str, arguments)]
    path = os.pathsep.join(str(code / room) for room in ROOMS)
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, cwd=code, env=environment, check=False)


class _Journaled(Rig):
    """With the writer's allowance for a journal from the beginning."""

    journaled = True


def use(data: Path, chance: random.Random, journaled: bool) -> int:
    """Does a broker's work on the store, with restarts and kills; ends by a stop, or a kill if `journaled`."""
    rig, count = (_Journaled if journaled else Rig)(data), 0
    for turn in range(ROUNDS):
        topic, group = chance.choice(drain.READ[:3])
        rig.send(*(f"new-{turn}-{number}" for number in range(chance.randrange(1, 5))), topic=topic)
        rows = rig.pop(chance.randrange(1, 8), topic, group, invisible_ms=chance.choice([SECOND, HOUR]))
        cut = chance.randrange(len(rows) + 1)
        rig.ack(rows[:cut], group)
        rig.release(rows[cut : cut + 2], group, delay_ms=chance.choice([0, SECOND]), reason="another try")
        rig.extend(rows[cut + 2 :], HOUR, group)
        rig.advance(chance.randrange(500))
        count += 2 + len(rows)
        if turn % 40 == 39:
            if chance.random() < 0.5:
                rig.restart()
            else:
                rig.crash()
    assert rig.findings() == []
    if journaled:
        rig.abandon()
    else:
        rig.core.close()
    return count


def verdict(release: Release, handed: Handed) -> str:
    """What the release did otherwise than it is listed with; "" if nothing."""
    if release.refuses:
        refused = str(handed.told.get("refused", ""))
        return "" if release.refuses in refused else f"it should refuse with {release.refuses!r}: {handed.told}"
    if "got" not in handed.told:
        return f"it should serve the store: {handed.told}"
    if handed.told["findings"]:
        return f"its check finds {handed.told['findings'][:3]}"
    return "" if handed.told["got"] == handed.wanted.get("got") else "it delivers other messages than this release"


def main() -> int:
    """Prints the table."""
    row, sound = "{:<38}{:>9}{:>8}{:>12}  {}", True
    print(row.format("release", "format", "used", "delivered", "handed back"))
    for name in sys.argv[1:] or RELEASES:
        release = RELEASES[name]
        if not has_history(release):
            print(f"{name:<38}skipped: this clone has no commit {release.commit}")
            continue
        with tempfile.TemporaryDirectory(prefix="popmq-handed-") as scratch:
            handed = handed_back(release, Path(scratch))
        wrong = verdict(release, handed)
        sound = sound and not wrong
        delivered = sum(map(len, handed.told.get("got", {}).values()))
        said = wrong or (f"refused: {release.refuses}" if release.refuses else "serves, the same messages")
        print(row.format(name, release.writes, handed.used, delivered or "–", said), flush=True)
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
