"""What a broker can be configured with: defaults and limits. `settings.py` reads them from flags, variables, a file."""

import os
import pathlib
from typing import NamedTuple


class Unnamed(int):
    """A default, as opposed to a value that the user named.

    A port: if it is taken, the broker starts without it and reports so. The user of a second broker on one machine
    names its `--port`, and it must not fail for ports that were not named. The limit of the data file: a limit that was
    set while the broker ran takes precedence.
    """


HOST = "127.0.0.1"
PORT = 8081
#: Some official clients use TLS unless configured otherwise, so it is on by default.
TLS_PORT = Unnamed(8082)
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
TRANSPORT = os.environ.get("POPMQ_TRANSPORT", "auto")
#: A client opens one connection, or a few; a proxy, or a network behind one address, opens those of all its clients.
CONNECTIONS_PER_ADDRESS = 1_000
SYNC_MODES = ("full", "meta", "none")
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("text", "json")


class Options(NamedTuple):
    """The options of `popmq serve`.

    `max_size` bounds the data file; it is address space, not disk, so the default is generous. `sync` decides what an
    OK guarantees: only with `full` all answered writes survive a power failure.
    """

    data: pathlib.Path = DATA
    host: str = HOST
    port: int = PORT
    metrics_port: int = METRICS_PORT  # 0 = off
    max_size: int = MAX_SIZE  # bytes of the data file
    sync: str = "full"  # full: fsync before every OK; meta, none: see `--help`
    tls_port: int = 0  # 0 = off; `popmq serve` opens TLS_PORT
    tls_only: bool = False  # `port` stays closed
    tls_cert: pathlib.Path | None = None  # None: a development certificate, made in the data folder
    tls_key: pathlib.Path | None = None
    tls_client_ca: pathlib.Path | None = None  # None: clients are not asked for certificates
    tls_client_required: bool = False  # no client connects to the TLS port without a certificate of tls_client_ca
    access_keys: pathlib.Path | None = None  # None: anyone who reaches a port may do everything
    transport: str = TRANSPORT
    connections_per_address: int = CONNECTIONS_PER_ADDRESS  # with PopMQ's own transport
    log_level: str = "info"
    log_format: str = "text"
    metrics_host: str = HOST
    console_port: int = 0  # 0 = no console
    console_host: str = HOST


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    import ipaddress  # here: few settings need it, and the command line reads this module at each start

    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def is_any(host: str) -> bool:
    """Whether the host means all addresses of this machine; `::` those of both families."""
    return host.strip("[]") in ("0.0.0.0", "::", "")


def address(host: str, port: int) -> str:
    """host:port, with the brackets that an IPv6 host needs."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
