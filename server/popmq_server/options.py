"""All options of the broker: default, unit, limit, flag."""

import argparse
import os
import pathlib
import re
from typing import NamedTuple


class Unnamed(int):
    """A default, as opposed to a value that the user named.

    A port: if it is taken, the broker starts without it and reports so. The user of a second broker on one machine
    names its `--port`, and it must not fail for ports that nobody named. The limit of the data file: a limit that was
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


#: The gRPC server: grpcio's, or PopMQ's own (popmq_http2).
TRANSPORTS = ("grpcio", "python")
TRANSPORT = os.environ.get("POPMQ_TRANSPORT", "grpcio")


class Options(NamedTuple):
    """The options of `popmq serve`.

    `max_size` bounds the data file; it is address space, not disk, so the default is generous. `sync` decides what an
    OK guarantees: only with `full` all answered writes survive a power failure.
    """

    data: pathlib.Path = DATA
    host: str = HOST
    port: int = PORT
    metrics_port: int = METRICS_PORT  # on the loopback; 0 = off
    max_size: int = MAX_SIZE  # bytes of the data file
    sync: str = "full"  # full: fsync before every OK; meta, none: see `--help`
    tls_port: int = 0  # 0 = off; `popmq serve` opens TLS_PORT
    tls_only: bool = False  # `port` stays closed
    tls_cert: pathlib.Path | None = None  # None: a development certificate, made in the data folder
    tls_key: pathlib.Path | None = None
    access_keys: pathlib.Path | None = None  # None: anyone who reaches a port may do everything
    transport: str = TRANSPORT


def address(host: str, port: int) -> str:
    """host:port, with the brackets that an IPv6 host needs."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([KMGT])(?:IB)?)?", re.ASCII | re.IGNORECASE)


def size(text: str) -> int:
    """Parses a size in bytes: `1073741824`, `512MiB`, `1.5GiB`. Raises argparse.ArgumentTypeError."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: name bytes, or KiB, MiB, GiB, TiB, e.g. 20GiB")
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * (1 << 10 * (" KMGT".index(found[2].upper()) if found[2] else 0)))


def _max_size(text: str) -> int:
    value = size(text)
    if not MAX_SIZE_MIN <= value <= MAX_SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text} is not from {MAX_SIZE_MIN >> 20}MiB to {MAX_SIZE_MAX >> 40}TiB")
    return value


def _port(text: str) -> int:
    """A port, or 0, whose meaning depends on the flag."""
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0–65535")
    return int(text)


def parse(argv: list[str] | None = None) -> Options:
    """Flags → Options; exits with a usage message when they are invalid."""
    parser = argparse.ArgumentParser(prog="popmq serve", description="Serve a PopMQ broker from one data folder.")
    parser.add_argument(
        "--data",
        type=pathlib.Path,
        default=DATA,
        metavar="DIR",
        help="data folder, made when missing (default ./%(default)s)",
    )
    parser.add_argument("--host", default=HOST, help="address to listen on (default %(default)s)")
    parser.add_argument("--port", type=_port, default=PORT, help="gRPC port, 0 = any free one (default %(default)s)")
    _add_secure(parser)
    parser.add_argument(
        "--metrics-port",
        type=_port,
        default=METRICS_PORT,
        help="Prometheus port on the loopback, 0 = off (default %(default)s, or none when that is taken)",
    )
    parser.add_argument(
        "--max-size",
        type=_max_size,
        default=MAX_SIZE,
        metavar="BYTES",
        help="limit of the data file, e.g. 20GiB (default 64GiB, or what `popmq max-size` has set)",
    )
    parser.add_argument(
        "--sync",
        choices=SYNC_MODES,
        default="full",
        help=(
            "full: an OK is on disk. meta: a power cut may lose the last commit, the store stays sound. "
            "none: a power cut may lose what the system had not written; only a killed process loses nothing "
            "(default %(default)s)"
        ),
    )
    parser.add_argument(
        "--transport",
        choices=TRANSPORTS,
        default=TRANSPORT,
        help="what serves the ports: grpcio, or python, which is faster and new (default %(default)s)",
    )
    options = Options(**vars(parser.parse_args(argv)))
    if why := _fault(options):
        parser.error(why)
    return options


def _add_secure(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for TLS and access keys."""
    parser.add_argument(
        "--tls-port",
        type=_port,
        default=TLS_PORT,
        help="gRPC port with TLS, 0 = none (default %(default)s, or none when that is taken)",
    )
    parser.add_argument("--tls-only", action="store_true", help="leave the port without TLS closed")
    parser.add_argument(
        "--tls-cert",
        type=pathlib.Path,
        metavar="FILE",
        help="certificate chain (PEM), read again when it is replaced (default: one for development, made in DIR)",
    )
    parser.add_argument("--tls-key", type=pathlib.Path, metavar="FILE", help="its private key (PEM)")
    parser.add_argument(
        "--access-keys",
        type=pathlib.Path,
        metavar="FILE",
        help="who may do what (TOML, mode 600, read again when it is replaced); every call then needs a key",
    )


def _fault(options: Options) -> str:
    """The fault of flags that contradict each other; "" = none."""
    if bool(options.tls_cert) != bool(options.tls_key):
        return "--tls-cert and --tls-key belong together: name both files, or neither"
    if options.transport not in TRANSPORTS:  # a default from the environment is not checked by argparse
        return f"POPMQ_TRANSPORT is {options.transport!r}: it has to be one of {', '.join(TRANSPORTS)}"
    if not options.tls_port and (options.tls_only or options.tls_cert):
        return "--tls-port 0 serves no TLS: name a port, or leave out --tls-only, --tls-cert and --tls-key"
    return ""


SYNC_MODES = ("full", "meta", "none")
