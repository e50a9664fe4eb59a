"""What `import popmq` promises: names, types, the example, and two clients that speak the same words."""

import functools
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.face import calls_of, namespaces_of, public

ROOT = Path(__file__).parent.parent.parent


ON_THE_CLIENT = [
    "ack",
    "broadcast_consume",
    "client_stats",
    "close",
    "consume",
    "extend",
    "forget_results",
    "info",
    "pop",
    "pull",
    "pull_columns",
    "pull_consume",
    "reject",
    "release",
    "reply",
    "request",
    "result",
    "results",
    "send",
    "send_back",
    "settle",
    "snooze",
    "store_results",
    "transaction",
    "wait_available",
]


def test_every_exported_name_is_there_and_says_what_it_is() -> None:
    assert [name for name in popmq.__all__ if not inspect.getdoc(getattr(popmq, name))] == []


def test_both_clients_have_the_same_words_with_the_same_parameters() -> None:
    for mine, other in (
        (calls_of(popmq.Client), calls_of(popmq.AsyncClient)),
        (public(popmq.Consumer), public(popmq.AsyncConsumer)),
        (public(popmq.PullConsumer), public(popmq.AsyncPullConsumer)),
    ):
        assert mine.keys() == other.keys()
        for name in mine:
            assert inspect.signature(mine[name]).parameters == inspect.signature(other[name]).parameters, name


def test_a_client_itself_has_what_every_program_calls_and_the_rest_is_in_namespaces() -> None:
    assert sorted(public(popmq.Client)) == ON_THE_CLIENT
    assert [*namespaces_of(popmq.Client)] == [*namespaces_of(popmq.AsyncClient)]


def about(space: str) -> str:
    return (inspect.getdoc(inspect.getattr_static(popmq.Client, space)) or "").removesuffix(".")


def test_the_documentation_lists_every_namespace_with_its_calls() -> None:
    page = (ROOT / "docs/sdk.md").read_text()
    rows = [
        f"| `client.{space}` | {', '.join(f'`{name}`' for name in public(kind))} | {about(space)} |"
        for space, kind in namespaces_of(popmq.Client).items()
    ]
    assert re.findall(r"^\| `client\.\w+` \|.*", page, re.MULTILINE) == rows


def test_calls_of_a_client_that_texts_name_exist() -> None:
    """In pages, docstrings and hints."""
    calls = {*calls_of(popmq.Client), *namespaces_of(popmq.Client), "command"}  # that of `popmq client`
    pages = [*ROOT.glob("[A-Z]*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    sources = [path for folder in ("sdk", "spark_connector") for path in (ROOT / folder).rglob("*.py")]
    named = re.compile(r"(?<![\w.])client\.([a-z]\w*(?:\.[a-z]\w*)?)(?=[`(])")
    found = {(path.name, name) for path in pages + sources for name in named.findall(path.read_text())}
    assert len(found) > 100
    assert {(page, name) for page, name in found if name not in calls} == set()


def test_a_namespace_is_made_once_and_imported_when_it_is_first_used() -> None:
    code = (
        "import sys, popmq; client = popmq.Client('127.0.0.1:1')\n"
        "print([name for name in sys.modules if name.startswith('popmq._sync.calls')])\n"
        "print(client.topics is client.topics, 'popmq._sync.calls.topics' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.splitlines(), done.stderr) == (["[]", "True True"], "")


@pytest.mark.slow
def test_every_method_of_a_client_says_what_it_does() -> None:
    assert [name for name, call in calls_of(popmq.Client).items() if not inspect.getdoc(call)] == []
    spaces = inspect.getmembers(popmq.Client, lambda member: isinstance(member, functools.cached_property))
    assert [name for name, space in spaces if not inspect.getdoc(space)] == []


@pytest.mark.slow
def test_the_blocking_client_is_what_the_asynchronous_one_says() -> None:
    pytest.importorskip("ruff", reason="the form of what is written comes from ruff: not among what users install")
    done = subprocess.run([sys.executable, "sdk/twin.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.slow
def test_the_example_of_the_package_runs(popmq_broker: Broker) -> None:
    example = re.search(r"    import popmq\n.*?\n\n(?=Calls)", popmq.__doc__ or "", re.DOTALL)
    assert example
    code = textwrap.dedent(example[0]).replace("127.0.0.1:8081", popmq_broker.endpoint)
    code = code.replace('consume("orders", "billing")', 'consume("orders", "billing", until_idle=0.1)')
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, timeout=60)
    assert (sorted(done.stdout.split()), done.stderr) == (["one", "two"], "")


@pytest.mark.slow
def test_importing_the_sdk_brings_nothing_of_the_server() -> None:
    code = "import sys, popmq, popmq.testing; print([name for name in sys.modules if name.startswith('popmq_server')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("[]", "")
