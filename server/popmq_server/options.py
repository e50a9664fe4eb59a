"""The settings of a broker: defaults and limits. `settings/` reads them from flags, variables, a file."""

import os
import pathlib
from collections.abc import Iterable
from typing import NamedTuple


class Unnamed(int):
    """A default, as opposed to a value that the user named.

    A port: if it is taken, the broker starts without it and reports so. The user of a second broker on one machine
    names its `--port`, and it must not fail for ports that were not named. The limit of the data file: a limit that was
    set while the broker ran takes precedence.
    """


HOST = "127.0.0.1"
HOSTS = (HOST,)
PORT = 8081
#: Some official clients use TLS unless configured otherwise, so it is on by default.
TLS_PORT = Unnamed(8082)
#: popmq.v1 over HTTP/1.1 with JSON.
HTTP_PORT = Unnamed(8083)
METRICS_PORT = Unnamed(9464)
DATA = pathlib.Path("popmq-data")
MAX_SIZE = Unnamed(64 << 30)
MAX_SIZE_MIN = 16 << 20
#: Half of a process's address space, since the whole map is one mapping.
MAX_SIZE_MAX = 64 << 40
#: How long a stopping broker lets running calls end, in seconds.
DRAIN_S = 5.0


#: The gRPC server: PopMQ's own (popmq_http2), or grpcio's. With "auto" the release chooses: its own.
TRANSPORTS = ("auto", "python", "grpcio")
TRANSPORT = os.environ.get("POPMQ_TRANSPORT", "").strip() or "auto"  # an empty variable counts as not set
#: A client opens one connection, or a few; a proxy, or a network behind one address, opens those of all its clients.
CONNECTIONS_PER_ADDRESS = 1_000
#: What keeps the messages; process/engines.py starts them.
ENGINES = ("embedded", "rocketmq")
#: TLS to the brokers of a cluster; `verify` compares their certificates with authorities.
BROKER_TLS = ("off", "on", "verify")
#: Each is a socket, a heartbeat each 30 s, and an entry of the client table, at every master.
MEMBER_CONNECTIONS = 2_000
SYNC_MODES = ("full", "meta", "none")
#: Whether commit batches go through a journal (store/journal/folding.py).
JOURNAL_MODES = ("off", "on")
JOURNAL = os.environ.get("POPMQ_JOURNAL", "").strip() or "on"
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


class Options(NamedTuple):
    """The options of `popmq serve`.

    `max_size` bounds the data file; it is address space, not disk, so the default is generous. `sync` decides what an
    OK guarantees: only with `full` all answered writes survive a power failure.
    """

    data: pathlib.Path = DATA
    host: tuple[str, ...] = HOSTS  # the first one decides what port 0 is, and is advertised
    port: int = PORT
    metrics_port: int = METRICS_PORT  # 0 = off
    max_size: int = MAX_SIZE  # bytes of the data file
    sync: str = "full"  # full: fsync before every OK; meta, none: see `--help`
    journal: str = JOURNAL  # of JOURNAL_MODES
    tls_port: int = 0  # 0 = off; `popmq serve` opens TLS_PORT
    http_port: int = 0  # 0 = off; `popmq serve` opens HTTP_PORT
    http_origins: tuple[str, ...] = ()  # of the web pages that may call; "*" = all
    tls_only: bool = False  # `port` stays closed
    tls_cert: pathlib.Path | None = None  # None: a development certificate, made where the engine has a place for it
    tls_key: pathlib.Path | None = None
    tls_client_ca: pathlib.Path | None = None  # None: clients are not asked for certificates
    tls_client_required: bool = False  # no client connects to the TLS port without a certificate of tls_client_ca
    access_keys: pathlib.Path | None = None  # None: anyone who reaches a port may do everything
    transport: str = TRANSPORT
    connections_per_address: int = CONNECTIONS_PER_ADDRESS  # with PopMQ's own transport
    log_level: str = "info"
    log_format: str = "text"
    metrics_host: tuple[str, ...] = HOSTS
    console_port: int = 0  # 0 = no console
    console_host: tuple[str, ...] = HOSTS
    engine: str = "embedded"
    namesrv: tuple[str, ...] = ()  # host:port of each name server
    cluster: str = ""  # "": the only one that the name servers know
    broker_key: pathlib.Path | None = None  # None: requests to brokers are not signed
    broker_tls: str = "off"  # of BROKER_TLS
    broker_ca: pathlib.Path | None = None  # None: the authorities that the system trusts
    broker_cert: pathlib.Path | None = None
    broker_cert_key: pathlib.Path | None = None
    handle_secret: pathlib.Path | None = None  # None: a random one, which no other gateway knows
    workers: int = 1  # processes
    member_connections: int = MEMBER_CONNECTIONS  # of one process, to one broker


def hosts(given: str | Iterable[str]) -> tuple[str, ...]:
    """The hosts of a text, with commas between them, or of several: without the brackets of IPv6. Raises ValueError."""
    texts = [text.strip() for one in ([given] if isinstance(given, str) else given) for text in one.split(",")]
    if not texts or not all(texts):
        raise ValueError("a host is empty: name an address of this machine, such as 127.0.0.1, or 0.0.0.0 for all")
    return tuple(text.removeprefix("[").removesuffix("]") for text in texts)


def overlap(hosts: tuple[str, ...]) -> str:
    """Names two hosts that are one address, or of which one covers the other; "" if there are none."""
    for number, host in enumerate(hosts):
        for other in hosts[:number]:
            if _parsed(host) == _parsed(other):
                return f"{host} is named twice: leave one of them out"
            for wide, narrow in ((host, other), (other, host)):
                if _parsed(wide) == "::" or (_parsed(wide) == "0.0.0.0" and _is_ipv4(narrow)):
                    return f"{wide} covers {narrow} too: leave {narrow} out"
    return ""


def _parsed(host: str) -> str:
    """Returns one spelling for all spellings of an address, or of a name."""
    import ipaddress  # here: few settings need it, and the command line reads this module at each start

    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    return str(getattr(found, "ipv4_mapped", None) or found)


def _is_ipv4(host: str) -> bool:
    return _parsed(host).replace(".", "").isdecimal()


def is_loopback(hosts: tuple[str, ...]) -> bool:
    """Whether only this machine reaches the addresses."""
    import ipaddress

    try:
        return all(host == "localhost" or ipaddress.ip_address(host).is_loopback for host in hosts)
    except ValueError:
        return False


def is_any(host: str) -> bool:
    """Whether the host means all addresses of this machine; `::` those of both families."""
    return _parsed(host) in ("0.0.0.0", "::")


def address(host: str, port: int) -> str:
    """host:port, with the brackets that an IPv6 host needs."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


def addresses(hosts: tuple[str, ...], port: int) -> str:
    """The addresses of a port, for people."""
    return ", ".join(address(host, port) for host in hosts)
