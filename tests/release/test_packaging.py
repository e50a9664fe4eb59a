"""What users get: a thin wheel, extras that say what they are for, a plugin without cost, a container that starts."""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest

import popmq
from harness.broker_process import own_port
from popmq_server.embedded_broker import EmbeddedBroker
from tests.sources import FRAMEWORKS, ROOT

# The first test builds the wheel and an environment, which pip does slowly on a slow machine.
pytestmark = pytest.mark.timeout(1800)


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
# All that `pip install popmq` may bring.
THIN = {"popmq", "protobuf", "googleapis-common-protos"}
# What users of the thin SDK must never have to install.
HEAVY = (
    "cryptography",
    "grpc",
    "lark",
    "lmdb",
    "prometheus_client",
    "pyspark",
    "pyarrow",
    "click",
    "rich",
    "jinja2",
    "starlette",
    "uvicorn",
)


def install(prefix: Path, extra: str) -> None:
    """Builds the wheel of this clone and installs it, as the Dockerfile does."""
    subprocess.run(["make", "install", f"PREFIX={prefix}", f"EXTRA={extra}"], cwd=ROOT, check=True)


def outside(prefix: Path) -> dict[str, str]:
    """An environment in which nothing of this clone or its .venv can be found."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    return clean | {"PATH": f"{prefix / 'bin'}{os.pathsep}{os.defpath}"}


def run(prefix: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, env=outside(prefix), cwd=prefix, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture(scope="module")
def thin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean virtual environment after `pip install .`, with no extra."""
    prefix = tmp_path_factory.mktemp("thin")
    install(prefix, "")
    return prefix


@pytest.mark.slow
def test_the_wheel_alone_brings_only_protobuf_and_the_format_of_errors(thin: Path) -> None:
    listed = json.loads(run(thin, "python", "-m", "pip", "list", "--format=json").stdout)
    names = {re.sub(r"[-_.]+", "-", package["name"].lower()) for package in listed}
    assert names - {"pip", "setuptools"} == THIN


@pytest.mark.slow
def test_the_wheel_alone_imports_and_finds_no_heavy_library(thin: Path) -> None:
    code = f"""
import importlib.util, popmq, popmq.errors
assert "site-packages" in popmq.__file__, popmq.__file__
print(popmq.__version__, [name for name in {HEAVY!r} if importlib.util.find_spec(name)])
"""
    done = run(thin, "python", "-W", "error", "-c", code)
    assert (done.stdout.strip(), done.stderr) == (f"{popmq.__version__} []", "")


@pytest.mark.slow
def test_the_wheel_alone_calls_a_broker_reads_its_errors_and_names_the_extra_of_the_other_transport(
    thin: Path, tmp_path: Path
) -> None:
    code = """
import sys, popmq
with popmq.Client(sys.argv[1]) as client:
    client.topics.create("orders")
    client.groups.create("billing")
    client.send("orders", b"one")
    print(client.pop("orders", "billing")[0].body)
    try:
        client.pop("no such topic!", "billing")
    except popmq.errors.BadRequest as refused:
        print(refused.code)
try:
    popmq.Client(sys.argv[1], transport="grpcio")
except popmq.errors.MissingLibrary as missing:
    print(missing.action)
"""
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker:
        done = run(thin, "python", "-W", "error", "-c", code, broker.endpoint)
    said = 'b\'one\'\nINVALID_FIELD\ninstall it: pip install "popmq[grpcio]"; or use transport="python"\n'
    assert (done.stdout, done.stderr) == (said, "")


@pytest.mark.slow
@pytest.mark.parametrize("command", [["popmq"], ["popmq", "serve"], ["popmq", "topic", "list"]])
def test_a_command_without_its_extra_says_a_sentence(thin: Path, command: list[str]) -> None:
    done = run(thin, *command)
    assert done.returncode != 0
    assert 'pip install "popmq[' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_wheel_holds_the_packages_and_nothing_else(thin: Path) -> None:
    (info,) = thin.glob("lib/python*/site-packages/popmq-*.dist-info")
    files = [line.split(",")[0] for line in (info / "RECORD").read_text().splitlines()]
    tops = {name.split("/")[0] for name in files if "dist-info" not in name and not name.startswith("..")}
    packages = {path.parent.name for path in ROOT.glob("*/*/py.typed")}
    assert tops == packages
    assert {f"{package}/py.typed" for package in packages} <= set(files)
    assert any(name.endswith("licenses/LICENSE") for name in files)


@pytest.mark.parametrize("missing", ["lark", "lmdb", "prometheus_client"])
def test_serve_without_the_server_extra_names_the_extra(missing: str) -> None:
    code = f"import sys; sys.modules[{missing!r}] = None; from popmq_cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "serve"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert 'pip install "popmq[server]"' in done.stderr
    assert "Traceback" not in done.stderr


def test_mcp_without_its_extra_names_the_extra() -> None:
    code = "import sys; sys.modules['mcp'] = None; from popmq_cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "mcp"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'pip install "popmq[mcp]"' in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_the_pytest_plugin_costs_a_users_tests_next_to_nothing() -> None:
    heavy = (*HEAVY, "popmq_server")
    code = f"import sys, popmq.testing; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")


def test_each_extra_is_announced_and_all_of_them_is_all() -> None:
    ours = metadata.metadata("popmq")
    parts = {"cli", "console", "grpcio", "otel", "server", "spark"}
    assert set(ours.get_all("Provides-Extra") or ()) == {*parts, *FRAMEWORKS, "all"}
    assert PROJECT["optional-dependencies"]["all"] == ["popmq[server,spark,console,otel]"]
    assert "popmq[cli,grpcio]" in PROJECT["optional-dependencies"]["server"]


def test_the_version_is_said_once_and_known_everywhere() -> None:
    assert metadata.version("popmq") == popmq.__version__


def test_the_floors_are_the_versions_that_the_stubs_were_made_with() -> None:
    """Generated code refuses an older runtime, so an older floor would be a promise that breaks at import."""
    stub = (ROOT / "proto/popmq_proto/v1/popmq_pb2.py").read_text()
    service = (ROOT / "proto/popmq_proto/v1/popmq_pb2_grpc.py").read_text()
    runtime = re.search(r"^# Protobuf Python Version: (\S+)$", stub, re.MULTILINE)
    generator = re.search(r"^GRPC_GENERATED_VERSION = '(\d+\.\d+)", service, re.MULTILINE)
    assert runtime
    assert generator
    assert f"protobuf>={runtime[1]}" in PROJECT["dependencies"]
    assert f"grpcio>={generator[1]}" in PROJECT["optional-dependencies"]["grpcio"]


# ── The container: what docker runs, without docker; test_image.py has the image itself ──────────────────────────────


def dockerfile() -> Iterator[tuple[str, str]]:
    """Its instructions, as (word, rest): a dictionary of them holds the last of each, which is the one in force."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    for line in text.splitlines():
        if line and not line.startswith("#"):
            word, _, rest = line.partition(" ")
            yield word, rest


def test_every_run_line_of_the_dockerfile_is_one_make_target() -> None:
    runs = [shlex.split(rest) for word, rest in dockerfile() if word == "RUN"]
    assert runs == [["make", "install", "PREFIX=/opt/popmq", "EXTRA=server"]]


def test_the_image_is_built_from_what_the_build_needs() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert kept == {"LICENSE", "Makefile", "README.md", "pyproject.toml"} | {
        package.split("/")[0] for package in hatch["packages"]
    }


@pytest.mark.slow
def test_the_installation_of_the_dockerfile_serves_is_healthy_and_drains(thin: Path, tmp_path: Path) -> None:
    """In the environment of the thin wheel, whose tests are done: the extra is installed on top."""
    prefix, data = thin, tmp_path / "data"
    install(prefix, "server")
    words = dict(dockerfile())
    port = str(own_port())
    variables = dict(word.split("=") for word in words["ENV"].split()) | {"POPMQ_DATA": str(data)}
    probe = ast.literal_eval(words["HEALTHCHECK"].partition("CMD ")[2])
    broker = subprocess.Popen(
        [*ast.literal_eval(words["CMD"]), "--port", "0", "--tls-port", "0", "--metrics-port", port],
        env=outside(prefix) | variables,
        cwd=prefix,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert broker.stdout
        ready = broker.stdout.readline().strip()
        assert ready.startswith("popmq: ready on 0.0.0.0:")
        assert "popmq" not in probe[0], "a health check every few seconds starts no Python"
        healthy = run(prefix, "env", f"POPMQ_METRICS_PORT={port}", *probe)
        assert healthy.returncode == 0, healthy.stderr
        broker.terminate()
        assert broker.wait(timeout=30) == 0
        assert run(prefix, "env", f"POPMQ_METRICS_PORT={port}", *probe).returncode == 1
    finally:
        broker.kill()
        broker.wait()
        if broker.stdout:
            broker.stdout.close()
