"""Runs a framework's own tests, from its source archive, against a PopMQ broker, and reads how each test ended."""

import os
import re
import shutil
import subprocess
import tarfile
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
#: The environment in which the tests run, and the unpacked sources.
BUILD = ROOT / "build" / "frameworks"
PYTHON = BUILD / "venv" / "bin" / "python"


@dataclass(frozen=True)
class Suite:
    """Some tests of one package."""

    package: str  # as PyPI has it; the installed release is taken
    title: str
    arguments: Sequence[str]  # of pytest
    left_out: Mapping[str, str]  # a part of a test's name, or `(part and not longer)` → why it is not run
    files: Mapping[str, Path] = field(default_factory=dict)  # ours, copied into the sources
    replaced: Mapping[str, str] = field(default_factory=dict)  # in the tests: a regular expression → a text
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """How one test ended: passed, failed, or skipped with a reason."""

    name: str
    state: str
    reason: str = ""


def release(package: str) -> str:
    """The installed release."""
    code = f"import importlib.metadata as m; print(m.version({package!r}))"
    return subprocess.run([PYTHON, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def sources(package: str) -> Path:
    """The source archive of the installed release, from PyPI, unpacked anew."""
    folder = BUILD / f"{package}-{release(package)}"
    archive = folder.with_name(f"{folder.name}.tar.gz")
    if not archive.exists():
        wanted = [f"{package}=={release(package)}", "--no-deps", "--no-binary", ":all:", "--dest", str(BUILD)]
        subprocess.run([PYTHON, "-m", "pip", "download", "--quiet", *wanted], check=True)
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(archive) as packed:
        packed.extractall(BUILD, filter="data")
    return folder


def run(suite: Suite, endpoint: str) -> list[Outcome]:
    """Runs it, with the broker's address in TEST_BROKER and TEST_BACKEND."""
    folder, report = sources(suite.package), BUILD / f"{suite.package}.xml"
    for target, file in suite.files.items():
        shutil.copy(file, folder / target)
    for file in folder.glob("t/integration/*.py") if suite.replaced else ():
        text = file.read_text()
        for pattern, new in suite.replaced.items():
            text = re.sub(pattern, new, text)
        file.write_text(text)
    url = f"popmq://{endpoint}"
    left_out = " and ".join(f"not {name}" for name in suite.left_out)
    command = [str(PYTHON), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:popmq", "--timeout", "300"]
    command += [*suite.arguments, f"--junitxml={report}", *(["-k", left_out] if left_out else [])]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POPMQ")}
    environment |= {"TEST_BROKER": url, "TEST_BACKEND": url, **suite.environment}
    subprocess.run(command, cwd=folder, env=environment, check=False)
    # A test that was run again is there several times: the last one counts.
    outcomes = {each.name: each for each in map(_outcome, ElementTree.parse(report).iter("testcase"))}
    return [*outcomes.values()] + [
        Outcome(name.strip("()").partition(" ")[0], "left out", reason) for name, reason in suite.left_out.items()
    ]


def _outcome(case: ElementTree.Element) -> Outcome:
    name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
    skipped = case.find("skipped")
    if skipped is not None:
        return Outcome(name, "skipped", skipped.get("message") or "")
    failed = case.find("failure") if case.find("failure") is not None else case.find("error")
    if failed is not None:
        return Outcome(name, "failed", (failed.get("message") or "").splitlines()[0][:120])
    return Outcome(name, "passed")


def table(results: Mapping[str, Sequence[Outcome]]) -> str:
    """What goes into the page: the counts of each suite, then what did not pass, with the reason."""
    lines = ["| tests | passed | failed | skipped by their own rules | left out |", "|---|--:|--:|--:|--:|"]
    for title, outcomes in results.items():
        count = Counter(outcome.state for outcome in outcomes)
        lines.append(f"| {title} | {count['passed']} | {count['failed']} | {count['skipped']} | {count['left out']} |")
    for state, heading in (
        ("failed", "failed"),
        ("left out", "left out"),
        ("skipped", "skipped: the reason they give"),
    ):
        found = [
            (outcome.reason, outcome.name) for each in results.values() for outcome in each if outcome.state == state
        ]
        if found:
            lines += ["", f"| {heading} | |", "|---|---|"]
            reasons = Counter(reason for reason, _ in found) if state == "skipped" else {}
            rows = reasons.items() if state == "skipped" else [(name, reason) for reason, name in found]
            lines += [f"| {_cell(first)} | {_cell(second)} |" for first, second in sorted(rows, key=str)]
    return "\n".join(lines)


def _cell(value: object) -> str:
    return re.sub(r"\s+", " ", str(value)).replace("|", "\\|")


def write(page: Path, text: str) -> None:
    """Puts the table behind the mark of a page."""
    before, mark, _ = page.read_text().partition("<!-- frameworks -->\n")
    page.write_text(f"{before}{mark}\n{text}\n")
