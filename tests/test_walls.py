"""Which package may import which, one module per library, no private names across packages.

Each rule is a function from a file's path and syntax tree to its complaints; each is shown to complain below.
"""

import ast
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from popmq_server.contract import engine
from tests.layers import ABOVE_THE_SEAM, DOORS, FLOORS, ROOMS, SEAM
from tests.sources import EVERYTHING, ROOT, imports, nodes, sources, statements, tree_of

FUNCTION_LINES_MAX = 70


def strangers(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports that the file's room may not have: a wall crossed, or a dependency that is not declared."""
    package = Path(path).parts[1]
    room = ROOMS[package]
    for found in imports(path, tree):
        guest = found.name.split(".")[0]
        door = room.late.get(guest)
        if found.under(package, *room.ours, *room.others) or guest in sys.stdlib_module_names:
            continue
        if not (door and found.late and path.startswith(door)):
            yield f"{path}:{found.line} {package} imports {found.name}"


def level(package: str, module: str) -> int:
    """The place in FLOORS of a module of a package; the longest name that fits decides."""
    fits = [
        (len(name), place)
        for place, names in enumerate(FLOORS[package])
        for name in names.split()
        if module == name or module.startswith(f"{name}.")
    ]
    return max(fits)[1]


def upward(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports from a floor above that of the importing module."""
    _, package, *parts = Path(path).with_suffix("").parts
    home = ".".join(parts).removesuffix("__init__").removesuffix(".")
    for found in imports(path, tree):
        if home and found.under(package):
            module = found.name.removeprefix(f"{package}.")
            if level(package, module) < level(package, home):
                yield f"{path}:{found.line} imports {found.name} from above"


def across_the_wire(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports of client and server of the transport from each other, and of either from what both share."""
    others = {"client", "server", "__init__.py"} - {Path(path).parts[2]}
    for found in imports(path, tree):
        if "__init__.py" in others and found.under(*(f"popmq_http2.{side}" for side in others)):
            yield f"{path}:{found.line} imports {found.name}: the two sides share only what is below both"


#: Packages of one floor that do not know each other: what two of them need stands on a floor below.
ALTERNATIVES = (
    ("popmq._async", "popmq._sync"),
    ("popmq._calls", "popmq._consuming"),
    ("popmq_server.cluster", "popmq_server.embedded"),
    ("popmq_server.protocols.native", "popmq_server.protocols.rocketmq"),
    ("popmq_spark.lease", "popmq_spark.offsets", "popmq_spark.writing"),
)


def across(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports of a package from its neighbour."""
    home = ".".join(Path(path).parts[1:])
    for packages in ALTERNATIVES:
        others = [package for package in packages if not home.startswith(f"{package}.")]
        for found in imports(path, tree):
            if len(others) < len(packages) and found.under(*others):
                yield f"{path}:{found.line} imports {found.name}, its neighbour"


def past_the_seam(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports of the protocols, access and metrics from below the seam: a second engine has none of it."""
    for found in imports(path, tree):
        if found.under("popmq_server") and not found.under(*SEAM):
            yield f"{path}:{found.line} imports {found.name}: it belongs to the embedded engine (contract/engine.py)"


def names_an_engine(path: str, tree: ast.AST) -> Iterator[str]:
    """Imports of the embedded engine by the process around it, beside the table of engines."""
    around = "/__main__.py" in path or "/process/" in path
    for found in imports(path, tree):
        if around and path != ENGINES_FILE and found.under("popmq_server.embedded"):
            yield f"{path}:{found.line} imports {found.name}: a process gets its engine from {ENGINES_FILE}"


#: Where else the server waits in real time: a timer that wakes the look at the clock, and limits on what never comes.
TIMERS = {
    "server/popmq_server/embedded/loop/long_poll.py": "its timer only calls `tick`, which asks the clock",
    "server/popmq_server/embedded/loop/backup_stream.py": "a copy that nobody reads holds pages of the store",
    "server/popmq_server/protocols/rocketmq/clients.py": "an answer that a client owes",
    "server/popmq_server/protocols/connect/": "slow clients of the HTTP port, as http2/ has them",
    "server/popmq_server/process/console_process.py": "the end of another process",
    "server/popmq_server/line_writer.py": "a reader of the log that is slow at the end of the process",
    "server/popmq_server/embedded/writer/writer.py": "a writer that does not settle",
    "server/popmq_server/cluster/": "brokers live in real time; tests let the event loop's time jump",
}
_WAITS = {"call_later", "call_at", "wait_for", "timeout_at"}


def other_doors(path: str, tree: ast.AST) -> Iterator[str]:
    """Libraries imported beside their one door, and sleeping beside the server's clock."""
    doors = DOORS.get(room := Path(path).parts[0], {})
    for found in imports(path, tree):
        door = doors.get(found.name.split(".")[0])
        if door and not path.startswith(door):
            yield f"{path}:{found.line} imports {found.name}, whose door is {door[0]}"
    if room != "server" or path.startswith(doors["time"]):
        return
    for node in (each for each in nodes(tree) if isinstance(each, ast.Attribute)):
        if node.attr == "sleep":
            yield f"{path}:{node.lineno} sleeps: waiting belongs to server/popmq_server/clock.py"
        waits = node.attr in _WAITS or ast.unparse(node).endswith(("loop.time", "asyncio.timeout"))
        if waits and not path.startswith(tuple(TIMERS)):
            yield f"{path}: {ast.unparse(node)} waits in real time: ask server/popmq_server/clock.py, or see TIMERS"


def stoppable(path: str, tree: ast.AST) -> Iterator[str]:
    """Clocks that a test of a user's program may have stopped, in what runs in that program."""
    for node in nodes(tree):
        names = {node.attr} if isinstance(node, ast.Attribute) else set()
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            names = {alias.name for alias in node.names}
        if path != "http2/popmq_http2/elapsed.py" and names & {"monotonic", "monotonic_ns"}:
            yield f"{path}: {', '.join(names)} of time may stand still in a test: ask popmq_http2.elapsed"


def private_names(path: str, tree: ast.AST) -> Iterator[str]:
    """Names with a leading underscore, imported from another room or a library, or an attribute of another room."""
    home = Path(path).parts[1]
    for found in imports(path, tree):
        room, *rest = found.name.split(".")
        if room != home and any(is_private(part) for part in rest):
            yield f"{path}:{found.line} {found.name} is private to {room}"
    foreign = ROOMS.keys() - {home}
    for node in nodes(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            owner = ast.unparse(node.value).split(".")[0]
            if owner in foreign:
                yield f"{path}:{node.lineno} {owner}…{node.attr} is private to {owner}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def from_test_modules(path: str, tree: ast.AST) -> Iterator[str]:
    """What tests share stands in a support module; bench, demo and harness run without the tests."""
    for found in imports(path, tree):
        module = next((part for part in found.name.split(".")[1:] if part.startswith("test_")), "")
        if found.under("tests") and module:
            yield f"{path}:{found.line} imports from the test module {module}"
        if found.under("tests") and not path.startswith(("tests/", "scripts/")):
            yield f"{path}:{found.line} imports {found.name}: what it needs belongs to harness/"


def too_long(path: str, tree: ast.AST) -> Iterator[str]:
    for node, _ in statements(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{path}:{node.lineno} {node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}"


Rule = Callable[[str, ast.AST], Iterator[str]]
ROOM_FOLDERS = tuple(f"{room.folder}/{package}" for package, room in ROOMS.items())
# These prove the public face, so they use nothing else.
PUBLIC_TESTS = ("tests/sdk", "tests/cli", "tests/spark")


@pytest.mark.mechanism("S4.21")
@pytest.mark.parametrize(
    ("rule", "folders"),
    [
        (strangers, ROOM_FOLDERS),
        (other_doors, ROOM_FOLDERS),
        (upward, ("server/popmq_server", "sdk/popmq", "http2/popmq_http2", "spark_connector/popmq_spark")),
        (across_the_wire, ("http2/popmq_http2",)),
        (across, ("server/popmq_server", "sdk/popmq", "spark_connector/popmq_spark")),
        (past_the_seam, ABOVE_THE_SEAM),
        (names_an_engine, ("server/popmq_server",)),
        (private_names, ROOM_FOLDERS + PUBLIC_TESTS),
        (from_test_modules, EVERYTHING),
        (too_long, EVERYTHING),
        (stoppable, ("sdk/popmq", "http2/popmq_http2", "remoting/popmq_remoting", "server/popmq_server")),
    ],
    ids=[
        "each room imports only what it may",
        "one door per library",
        "downwards only",
        "neither side of the transport knows the other",
        "no protocol, engine, mode or half knows another",
        "nothing past the seam",
        "one table of engines",
        "private means private",
        "no helpers in test modules",
        "short functions",
        "no clock that a test can stop",
    ],
)
def test_no_package_imports_across_a_wall(rule: Rule, folders: tuple[str, ...]) -> None:
    complaints = [
        complaint for path in sources(*folders) for complaint in rule(path.relative_to(ROOT).as_posix(), tree_of(path))
    ]
    assert complaints == []


def test_protocols_of_the_seam_have_at_most_eight_methods_inherited_ones_counted() -> None:
    """Who takes a protocol depends on each of its methods, and an engine has to have all of `BasicEngine`."""
    own = [kind for kind in vars(engine).values() if isinstance(kind, type) and kind.__module__ == engine.__name__]
    protocols = {
        kind.__name__: {method for base in kind.__mro__ if base.__module__ == engine.__name__ for method in vars(base)}
        for kind in own
    }
    assert {"BasicEngine", "Polling", "CheckStreams", "Engine"} <= set(protocols)
    public = {name: sorted(one for one in methods if not one.startswith("_")) for name, methods in protocols.items()}
    assert {name: methods for name, methods in public.items() if len(methods) > 8} == {}


def test_every_package_of_the_wheel_is_a_room_with_walls() -> None:
    packages = {path.parent.relative_to(ROOT).as_posix() for path in ROOT.glob("*/*/py.typed")}
    assert packages == set(ROOM_FOLDERS)


ENGINES_FILE = "server/popmq_server/process/engines.py"
RULE_FILE = "server/popmq_server/embedded/rules/delivery/pop.py"
LOOP_FILE = "server/popmq_server/embedded/loop/broker.py"
NATIVE_FILE = "server/popmq_server/protocols/native/native.py"
SERVER_FILE = "server/popmq_server/protocols/server.py"


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (strangers, "sdk/popmq/client.py", "import popmq_server"),
        (strangers, "sdk/popmq/client.py", "from popmq_proto import store"),
        (strangers, "sdk/popmq/client.py", "import lmdb"),
        (strangers, "sdk/popmq/testing.py", "from popmq_server.embedded_broker import EmbeddedBroker"),
        (strangers, "sdk/popmq/client.py", "def f():\n    import popmq_server"),
        (strangers, "sdk/popmq_cli/main.py", "import grpc"),
        (strangers, "sdk/popmq_console/app.py", "import popmq_server"),
        (strangers, RULE_FILE, "import popmq"),
        (strangers, "spark_connector/popmq_spark/source.py", "from popmq_proto.v1 import popmq_pb2"),
        (strangers, "remoting/popmq_remoting/connection/link.py", "from popmq_http2.transports import connected"),
        (other_doors, RULE_FILE, "import grpc.aio"),
        (other_doors, RULE_FILE, "from popmq_proto.v1 import popmq_pb2"),
        (other_doors, "server/popmq_server/embedded/fsck/check.py", "import lmdb"),
        (other_doors, RULE_FILE, "from lark import Lark"),
        (other_doors, LOOP_FILE, "from prometheus_client import Counter"),
        (other_doors, LOOP_FILE, "from time import monotonic"),
        (other_doors, LOOP_FILE, "import asyncio\nasyncio.sleep(1)"),
        (stoppable, "sdk/popmq/_worker/running.py", "from time import monotonic"),
        (stoppable, "http2/popmq_http2/server/call.py", "import time\nuntil = time.monotonic() + 1"),
        (other_doors, LOOP_FILE, "self._loop.time()"),
        (other_doors, LOOP_FILE, "loop.call_later(1, tick)"),
        (other_doors, LOOP_FILE, "async with asyncio.timeout(1): ..."),
        (other_doors, "sdk/popmq/client.py", "import rich.table"),
        (other_doors, "sdk/popmq/_async/transport/channel.py", "import grpc"),
        (upward, RULE_FILE, "from popmq_server.embedded.loop import broker"),
        (upward, "server/popmq_server/embedded/store/keys.py", "from popmq_server.process import serving"),
        (upward, "sdk/popmq/message.py", "from popmq._consuming.guard import Guard"),
        (upward, "sdk/popmq/_worker/running.py", "from popmq.worker import Worker"),
        (upward, "http2/popmq_http2/budget.py", "def f():\n    from popmq_http2.client import call"),
        (upward, "spark_connector/popmq_spark/options.py", "from popmq_spark.lease import plan"),
        (across, "sdk/popmq/_consuming/pull_settings.py", "from popmq._calls.pop_calls import ack"),
        (across_the_wire, "http2/popmq_http2/client/call.py", "from popmq_http2.server.call import Call"),
        (
            across,
            "server/popmq_server/protocols/rocketmq/x.py",
            "from popmq_server.protocols.native.requests import read",
        ),
        (across, "spark_connector/popmq_spark/offsets/x.py", "from popmq_spark.lease.part import Part"),
        (across, "server/popmq_server/cluster/names.py", "from popmq_server.embedded.store.keys import U32"),
        (across, RULE_FILE, "from popmq_server.cluster import names"),
        (other_doors, RULE_FILE, "from popmq_remoting import names"),
        (across_the_wire, "http2/popmq_http2/server/call.py", "from popmq_http2.client.target import Target"),
        (across_the_wire, "http2/popmq_http2/inbox.py", "from popmq_http2.server.call import Call"),
        (past_the_seam, NATIVE_FILE, "from popmq_server.embedded.store.keys import U32"),
        (
            past_the_seam,
            "server/popmq_server/protocols/access/authorization.py",
            "from popmq_server.values import handles",
        ),
        (past_the_seam, "server/popmq_server/protocols/entries.py", "from popmq_server.values import outgoing"),
        (past_the_seam, SERVER_FILE, "from popmq_server.embedded.loop.broker import Broker"),
        (names_an_engine, "server/popmq_server/process/serving.py", "from popmq_server.embedded.loop import life"),
        (private_names, "spark_connector/popmq_spark/source.py", "from popmq._calls import pop_request"),
        (private_names, "spark_connector/popmq_spark/source.py", "import popmq\npopmq.client._stub"),
        (private_names, "tests/sdk/test_client.py", "from popmq.client import _parse"),
        (private_names, SERVER_FILE, "from grpc_health.v1._async import HealthServicer"),
        (from_test_modules, "tests/engine/delivery/test_pop.py", "from tests.engine.test_send import sent"),
        (from_test_modules, "bench/parts/legs.py", "from tests.crash.client import Client"),
        (too_long, "sdk/popmq/client.py", "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX),
    ],
)
def test_a_broken_wall_is_noticed(rule: Rule, path: str, code: str) -> None:
    assert list(rule(path, ast.parse(code)))


@pytest.mark.parametrize(
    ("rule", "path", "code"),
    [
        (strangers, "sdk/popmq/testing.py", "def f():\n    from popmq_server.embedded_broker import EmbeddedBroker"),
        (strangers, NATIVE_FILE, "from ...errors import Refused\nfrom . import requests"),
        (other_doors, NATIVE_FILE, "import grpc"),
        (stoppable, "sdk/popmq/_calls/send_calls.py", "import time\nborn_ms = int(time.time() * 1000)"),
        (upward, RULE_FILE, "from popmq_server import clock\nfrom popmq_server.embedded.state import tx"),
        (across, "spark_connector/popmq_spark/source.py", "from popmq_spark.lease.part import Part"),
        (across_the_wire, "http2/popmq_http2/__init__.py", "from popmq_http2.server.call import Call"),
        (across_the_wire, "http2/popmq_http2/client/call.py", "from popmq_http2.client import blocks, target"),
        (across_the_wire, "http2/popmq_http2/server/call.py", "from popmq_http2.inbox import Inbox"),
        (past_the_seam, SERVER_FILE, "from popmq_server.contract.engine import Engine"),
        (private_names, "sdk/popmq/client.py", "from popmq._calls import pop_request\nimport popmq\npopmq._calls"),
        (from_test_modules, "tests/engine/delivery/test_pop.py", "from tests.engine.rig import Rig"),
        (from_test_modules, "bench/parts/legs.py", "from harness.broker_process import BrokerProcess"),
        (too_long, "sdk/popmq/client.py", "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)),
    ],
)
def test_a_door_is_not_a_broken_wall(rule: Rule, path: str, code: str) -> None:
    assert list(rule(path, ast.parse(code))) == []
