"""Runs some tests on every Python that this machine has: the wheel of this clone in an environment for each.

    python scripts/interpreters.py             all of them; exit code 1 if one fails
    python scripts/interpreters.py --list      which there are

These are quick tests, those of the Spark connector among them, and then two queries in a real Spark.

It looks for python3.11 and later on the PATH and in pyenv, and takes one of each minor version. The classifiers in
pyproject.toml name the versions that a release was tested on.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
OLDEST = (3, 11)
#: Beyond the newest release, so that a machine with a later Python tests it, too.
NEWEST = (3, 16)
#: What another interpreter can change: threads, asyncio, typing at run time, the C extensions of the dependencies.
TESTS = (
    *(
        "tests/sdk/sending/test_send.py",
        "tests/sdk/test_consume.py",
        "tests/sdk/workers/test_worker.py",
        "tests/sdk/calling/test_values.py",
    ),
    *(
        "tests/sdk/sending/test_requests.py",
        "tests/wire/refusing/test_limits.py",
        "tests/wire/serving/test_process.py",
        "tests/engine/filters",
        "tests/engine/schedules",
    ),
    *("tests/http2", "tests/cli/test_messages.py", "tests/spark"),
)
#: A driver and its Python workers on the interpreter: pickles, Arrow and forks between them.
SPARK_TESTS = "tests/spark/real"
FAST = (
    "not slow and not browser and not image and not helm and not spark and not chaos and not polyglot and not interop "
    "and not twin"
)


def versions() -> dict[str, Path]:
    """The interpreters by minor version, such as "3.12"; of one version the last in order."""
    return {f"3.{minor}": working[-1] for minor in range(OLDEST[1], NEWEST[1]) if (working := found(minor))}


def found(minor: int) -> list[Path]:
    """The interpreters of a minor version that work."""
    on_path = shutil.which(f"python3.{minor}")
    candidates = [Path(on_path)] if on_path else []
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"))
    return [path for path in candidates if works(path, minor)]


def works(python: Path, minor: int) -> bool:
    """Whether it starts, and is of this version: a shim of pyenv may name a version that is not selected."""
    command = [str(python), "-c", "import sys; print(sys.version_info[1])"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return False
    return done.returncode == 0 and done.stdout.strip() == str(minor)


def classified() -> set[str]:
    """The minor versions that pyproject.toml names."""
    text = (ROOT / "pyproject.toml").read_text()
    return set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', text))


def tested(version: str, python: Path) -> bool:
    """Installs the wheel with the test tools, and runs the tests against it."""
    prefix = f"build/python-{version}"
    install = ["make", "--no-print-directory", "install", f"PREFIX={prefix}", "EXTRA=server,spark"]
    if not done([*install, "WITH=--group test", f"PYTHON={python}"]):
        return False
    pytest = [f"{prefix}/bin/pytest", "-q", "-p", "no:cacheprovider"]
    print(f"interpreters: quick tests on Python {version}", flush=True)
    quick = done([*pytest, "-n", "2", "--dist", "loadfile", *TESTS, "-m", FAST])
    print(f"interpreters: two Spark queries on Python {version}", flush=True)
    return done([*pytest, SPARK_TESTS, "-m", "spark and smoke"]) and quick


def done(command: list[str]) -> bool:
    return not subprocess.run(command, cwd=ROOT, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the interpreters and do nothing")
    only_list: bool = parser.parse_args().list
    chosen = versions()
    for version, python in chosen.items():
        print(f"{version}  {python}")
    if only_list:
        return 0
    outcome = {version: tested(version, python) for version, python in chosen.items()}
    for version, good in outcome.items():
        print(f"Python {version}: {'ok' if good else 'FAILED'}")
    for version in sorted(classified() - outcome.keys()):
        print(f"Python {version}: not on this machine, though pyproject.toml names it")
    return 0 if outcome and all(outcome.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
