"""What `import popmq` promises: names, types, the example, and two clients that speak the same words."""

import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import popmq
from popmq.testing import Broker

ROOT = Path(__file__).parent.parent.parent


EXPORTED = [
    "DELAY_LEVELS",
    "AccessKey",
    "AccessKeys",
    "Assignment",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncPullConsumer",
    "AsyncTransaction",
    "Attachment",
    "Availability",
    "BatchCommit",
    "BrokerInfo",
    "Client",
    "ClientAnswer",
    "ClientSession",
    "ClientStats",
    "Columns",
    "Consumer",
    "DeadLetter",
    "DeadLetterReason",
    "DelayedMessage",
    "DelayedMessages",
    "Delivery",
    "Discarded",
    "Finished",
    "FlowControl",
    "Found",
    "Group",
    "GroupLife",
    "GroupStats",
    "HalfMessage",
    "HalfMessages",
    "History",
    "HistoryPoint",
    "InvisibleTimeResult",
    "Lease",
    "Leases",
    "LifeEvent",
    "LiteTopics",
    "Message",
    "MessageGroupState",
    "MessageGroups",
    "MessageLife",
    "MessagePreview",
    "Middleware",
    "Owner",
    "OwnerLease",
    "Page",
    "PopMQError",
    "Position",
    "PullConsumer",
    "PullState",
    "Pulled",
    "PulledColumns",
    "QueueLocks",
    "QueueOffsets",
    "QueueStats",
    "Quota",
    "RedriveFailure",
    "Redriven",
    "Reject",
    "Retention",
    "Retry",
    "RetryLater",
    "Schedule",
    "SealedBatch",
    "SendReceipt",
    "Session",
    "StageName",
    "Stats",
    "StoreStats",
    "Subscription",
    "Timeouts",
    "Token",
    "Topic",
    "TopicStats",
    "TraceContext",
    "Transaction",
    "TransactionCheck",
    "Worker",
    "errors",
]


def test_the_exported_names_are_these() -> None:
    assert popmq.__all__ == EXPORTED
    assert all(hasattr(popmq, name) for name in popmq.__all__)


def test_every_exported_name_says_what_it_is() -> None:
    assert [name for name in popmq.__all__ if not inspect.getdoc(getattr(popmq, name))] == []


def public(kind: type) -> dict[str, inspect.Signature]:
    functions = inspect.getmembers(kind, inspect.isfunction)
    return {name: inspect.signature(function) for name, function in functions if not name.startswith("_")}


def test_both_clients_have_the_same_words_with_the_same_parameters() -> None:
    for ours, theirs in (
        (popmq.Client, popmq.AsyncClient),
        (popmq.Consumer, popmq.AsyncConsumer),
        (popmq.PullConsumer, popmq.AsyncPullConsumer),
    ):
        mine, other = public(ours), public(theirs)
        assert mine.keys() == other.keys()
        for name in mine:
            assert mine[name].parameters == other[name].parameters, name


@pytest.mark.slow
def test_every_method_of_a_client_says_what_it_does() -> None:
    silent = [name for name, _ in inspect.getmembers(popmq.Client, inspect.isfunction) if name in public(popmq.Client)]
    assert [name for name in silent if not inspect.getdoc(getattr(popmq.Client, name))] == []


@pytest.mark.slow
def test_the_blocking_client_is_what_the_asynchronous_one_says() -> None:
    pytest.importorskip("ruff", reason="the form of what is written comes from ruff: not among what users install")
    done = subprocess.run([sys.executable, "sdk/twin.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)


@pytest.mark.slow
def test_the_example_of_the_package_runs(popmq_broker: Broker) -> None:
    example = re.search(r"    import popmq\n.*?\n\n(?=`)", popmq.__doc__ or "", re.DOTALL)
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
