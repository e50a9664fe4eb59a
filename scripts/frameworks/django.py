"""Django 6 in an environment of its own: its own tests of tasks over PopMQ, then ours, and those of the outbox.

    python -m scripts.frameworks.django         exit code 1 if a test fails

Django 6 needs Python 3.12, PopMQ 3.11. So this takes the newest Python of the machine, from 3.12 on; without one it
says so, and the exit code is 0. The environment is build/frameworks/django, Django's source archive beside it.
"""

import re
import subprocess
import sys
import tarfile
from pathlib import Path

from scripts.interpreters import ROOT, versions

BUILT = ROOT / "build" / "frameworks"
PREFIX = BUILT / "django"
PYTHON = PREFIX / "bin" / "python"
WANTED = "django>=6.0"
OLDEST_MINOR = 12
#: Ours that see which Django there is.
TESTS = ("tests/integrations/django", "tests/outbox")


def interpreter() -> Path | None:
    """The newest Python that Django 6 runs on."""
    found = [path for version, path in versions().items() if int(version.partition(".")[2]) >= OLDEST_MINOR]
    return found[-1] if found else None


def pip(*words: str) -> None:
    command = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", *words]
    subprocess.run(command, cwd=ROOT, check=True)


def prepare(python: Path) -> None:
    """Makes the environment, or brings it up to date."""
    if not PYTHON.exists():
        print(f"frameworks: making {PREFIX.relative_to(ROOT)} with {python}", flush=True)
        subprocess.run([python, "-m", "venv", PREFIX], check=True)
        pip("install", "--upgrade", "pip")
    pip("install", "--editable", ".[server,django]", "--group", "test", WANTED)


def source() -> Path:
    """The folder of Django's tests, from the source archive of the release that is installed."""
    shown = subprocess.run([PYTHON, "-m", "django", "--version"], capture_output=True, text=True, check=True)
    version = shown.stdout.strip()
    folder = BUILT / "source"
    unpacked = folder / f"django-{version}"
    if not unpacked.exists():
        print(f"frameworks: fetching the source of Django {version}", flush=True)
        pip("download", "--no-deps", "--no-binary", ":all:", "--dest", str(folder), f"django=={version}")
        (archive,) = [
            path for path in folder.glob("*.tar.gz") if re.fullmatch(rf"(?i)django-{version}", path.stem[:-4])
        ]
        with tarfile.open(archive) as opened:
            opened.extractall(folder, filter="data")
    return unpacked / "tests"


def main() -> int:
    python = interpreter()
    if python is None:
        print("frameworks: Django 6 was left out: it needs Python 3.12 or newer, on PATH or in pyenv")
        return 0
    prepare(python)
    own = [str(PYTHON), "-m", "tests.integrations.django.own_tests", str(source())]
    ours = [str(PYTHON), "-m", "pytest", "-q", "-m", "not chaos", *TESTS]
    codes = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in (own, ours)]
    return max(map(abs, codes))


if __name__ == "__main__":
    sys.exit(main())
