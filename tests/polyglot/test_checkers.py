"""What other people's checkers say: buf about the contract, pyright about the samples of the documents, AsyncAPI about
the document of a worker.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from harness.broker_process import ROOT
from tests.prose import write_samples
from tests.sdk.workers.documented import shop

pytestmark = [pytest.mark.polyglot, pytest.mark.slow]

TOOLS = ROOT / "build" / "checkers"
PACKAGES = ("@bufbuild/buf@1.75.0", "pyright@1.1.414", "@asyncapi/specs@6.11.1")
PROTO = ROOT / "proto"
#: Samples with a package that has no types of its own: Django's `atomic` is no context manager to pyright.
UNTYPED = {"page_docs_recipes_django.py"}


@pytest.fixture(scope="module")
def tools() -> Path:
    """The folder of the programs, installed once by npm."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not on the PATH of this machine")
    installed = TOOLS / "installed"
    if not installed.exists() or installed.read_text() != str(PACKAGES):
        done = run("npm", "install", "--silent", "--no-save", "--no-package-lock", "--prefix", str(TOOLS), *PACKAGES)
        assert done.returncode == 0, done.stdout + done.stderr
        installed.write_text(str(PACKAGES))
    return TOOLS / "node_modules" / ".bin"


def run(*words: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=600)


def test_buf_finds_nothing_in_the_contract(tools: Path) -> None:
    done = run(tools / "buf", "lint", cwd=PROTO)
    assert (done.returncode, done.stdout) == (0, "")


def test_buf_notices_a_field_with_another_number(tools: Path, tmp_path: Path) -> None:
    shutil.copytree(PROTO, tmp_path / "proto")
    contract = tmp_path / "proto" / "popmq" / "v1" / "popmq.proto"
    contract.write_text(contract.read_text().replace("string time_zone = 3;", "string time_zone = 99;"))
    done = run(tools / "buf", "breaking", "--against", PROTO, cwd=tmp_path / "proto")
    assert (done.returncode, "time_zone" in done.stdout) == (100, True)


def test_buf_finds_no_break_against_the_last_tag(tools: Path) -> None:
    tag = run("git", "describe", "--tags", "--abbrev=0", "--match", "v*").stdout.strip()
    if not tag:
        pytest.skip("this clone has no tag v*: proto/released.py compares with the record of the last release")
    done = run(tools / "buf", "breaking", "--against", f"{ROOT / '.git'}#tag={tag},subdir=proto", cwd=PROTO)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_samples_of_the_documents_pass_pyright(tools: Path, tmp_path: Path) -> None:
    samples = write_samples(tmp_path)
    paths = [str(ROOT / folder) for folder in ("sdk", "proto", "server", "spark_connector")]
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"extraPaths": paths, "typeCheckingMode": "standard"}))
    done = run(tools / "pyright", "--pythonpath", sys.executable, "--project", tmp_path, "--outputjson")
    told = json.loads(done.stdout)
    found = [(Path(one["file"]).name, one["message"]) for one in told["generalDiagnostics"]]
    assert [(page, message) for page, message in found if page not in UNTYPED] == []
    assert told["summary"]["filesAnalyzed"] == samples


def test_the_document_of_a_worker_is_one_of_asyncapi(tools: Path) -> None:
    schema = json.loads((tools.parent / "@asyncapi/specs/schemas/3.0.0-without-$id.json").read_text())
    check = jsonschema.Draft7Validator(schema)
    assert [error.message for error in check.iter_errors(shop().asyncapi())] == []
    assert list(check.iter_errors(shop().asyncapi() | {"channels": {"orders": {"messages": 3}}}))
