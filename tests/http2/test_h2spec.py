"""h2spec, the conformance suite of HTTP/2 (RFC 9113 and RFC 7541), against a server of echoes: every case passes.

It is a Go program, built once from the version that h2spec/go.mod pins. Without Go the test is skipped.
"""

import asyncio
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.http2.conftest import Serve
from tests.interop.builds import BUILT, NoTools, build_once, tool

SOURCES = Path(__file__).parent / "h2spec"
COMMAND = "github.com/summerwind/h2spec/cmd/h2spec"
#: Cases of generic, hpack and http2, the strict ones included, in the pinned version: fewer mean that some did not run.
CASES = 146


@pytest.fixture(scope="module")
def h2spec() -> Path:
    """The program, built unless it was built from these files before."""
    built = BUILT.parent / "h2spec"
    try:
        go = tool("go")
    except NoTools as missing:
        pytest.skip(str(missing))
    built.mkdir(parents=True, exist_ok=True)
    build_once(built, list(SOURCES.iterdir()), [go, "build", "-o", str(built / "h2spec"), COMMAND], SOURCES)
    return built / "h2spec"


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.polyglot
async def test_every_case_of_generic_hpack_and_http2_passes(h2spec: Path, serve: Serve, tmp_path: Path) -> None:
    _, port = await serve()
    report = tmp_path / "report.xml"
    words = ["generic", "hpack", "http2", "--port", str(port), "--path", "/t.Echo/say", "--timeout", "20"]
    words += ["--junit-report", str(report), "--strict"]
    running = await asyncio.create_subprocess_exec(str(h2spec), *words, stdout=asyncio.subprocess.PIPE)
    said, _ = await running.communicate()
    assert failures(report) == [], said.decode()
    assert len(list(ElementTree.parse(report).iter("testcase"))) == CASES


def failures(report: Path) -> list[str]:
    """Titles of the cases that failed, or were skipped."""
    return [
        f"{case.get('package')}: {case.get('classname')}"
        for case in ElementTree.parse(report).iter("testcase")
        if case.find("failure") is not None or case.find("skipped") is not None or case.find("error") is not None
    ]
