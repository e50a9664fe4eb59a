"""Fuzzing guided by coverage: atheris looks for inputs that reach new code, and for one that breaks a promise.

    python -m tests.fuzz MINUTES [TARGET …]            so long for all of these targets together; all without names
    python -m tests.fuzz MINUTES --keep [TARGET …]     and keeps what reached new code in tests/fuzz/corpus

Each target runs in a process of its own. An input that fails is in build/fuzzing/TARGET-found: run it again with
`python -m tests.fuzz 0 TARGET FILE`. Exit code 1 after a failure.
"""

import importlib
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzz.corpus import keep, kept, read, unpack
from tests.fuzz.targets import TARGETS

WORK, SERVER = Path("build") / "fuzzing", Path("server")
#: Seconds after which an input that is still running has failed: wall time, and `make fuzz` gives way to everything
#: else on the machine. Bytes of the longest input.
HANGS_S, INPUT_BYTES = 300, 8_000
#: One change in so many is a change of bytes, where a target knows better ones.
PLAIN = 3


def fuzz(name: str, flags: Sequence[str]) -> None:
    """Runs one target in this process, which ends here."""
    atheris: Any = importlib.import_module("atheris")  # only in build/fuzz: other environments do not need it
    named = TARGETS[name]
    with atheris.instrument_imports(include=list(named.packages), exclude=_others(named.packages)):
        prepared = named.prepared()
    with prepared as target:
        unpack(target.seeds + kept(name), WORK / name)

        change = target.mutate

        def mutate(raw: bytes, most: int, seed: int) -> bytes:
            if change is None or random.Random(seed).randrange(PLAIN) == 0:
                return bytes(atheris.Mutate(raw, most))
            return change(raw, seed)[:most]

        more = {"custom_mutator": mutate} if change else {}
        atheris.Setup([sys.argv[0], *flags], target.run, **more)
        atheris.Fuzz()


def _others(packages: tuple[str, ...]) -> list[str]:
    """The modules beside these packages: atheris takes whole distributions, and modules to leave out."""
    paths = [path.relative_to(SERVER).with_suffix("") for path in SERVER.rglob("*.py")]
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return sorted(name for name in names if not name.startswith(packages))


def campaign(minutes: float, names: Sequence[str], keeps: bool) -> int:
    """Fuzzes targets one after the other; how many failed."""
    failed = 0
    for name in names:
        found = WORK / f"{name}-found"
        found.mkdir(parents=True, exist_ok=True)
        (WORK / name).mkdir(exist_ok=True)
        seconds = max(1, round(minutes * 60 / len(names)))
        print(f"fuzz: {name} for {seconds} s", flush=True)
        ended = _run(name, f"-max_total_time={seconds}", f"-artifact_prefix={found}/", str(WORK / name))
        failed += ended != 0
        if keeps and not ended:
            print(f"fuzz: {keep(name, read(WORK / name))} inputs of {name} are kept", flush=True)
    return failed


def _run(name: str, *flags: str) -> int:
    limits = (f"-timeout={HANGS_S}", f"-max_len={INPUT_BYTES}", "-rss_limit_mb=3000", "-print_final_stats=1")
    return subprocess.run([sys.executable, "-m", "tests.fuzz", "run", name, *limits, *flags]).returncode


def main(words: list[str]) -> int:
    """Exit code: 0, or 1 when a target failed."""
    if words[0] == "run":
        fuzz(words[1], words[2:])
        return 0
    files = [word for word in words[1:] if Path(word).is_file()]
    names = [word for word in words[1:] if word in TARGETS] or list(TARGETS)
    if files:
        return _run(names[0], *files)
    return min(1, campaign(float(words[0]), names, "--keep" in words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
