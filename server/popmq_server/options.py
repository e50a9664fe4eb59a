"""Every knob of the broker: default, unit, limit, flag."""

import argparse
import pathlib
import re
from typing import NamedTuple

from popmq_server.storage.lmdb import SYNC_MODES

HOST = "127.0.0.1"
PORT = 8081
METRICS_PORT = 9464
DATA = pathlib.Path("popmq-data")
MAX_SIZE = 64 << 30
MAX_SIZE_MIN = 16 << 20
#: Half of what a process can address, since the whole map is one mapping.
MAX_SIZE_MAX = 64 << 40
#: How long a stopping broker lets running calls end, in seconds.
DRAIN_S = 5.0


class Options(NamedTuple):
    """What `popmq serve` takes.

    `max_size` bounds the data file; it is address space, not disk, so the default is generous. `sync` is what an OK
    means: only `full` survives a power cut whole.
    """

    data: pathlib.Path = DATA
    host: str = HOST
    port: int = PORT
    metrics_port: int = METRICS_PORT  # on the loopback; 0 = off
    max_size: int = MAX_SIZE  # bytes of the data file
    sync: str = "full"  # full: fsync before every OK; meta, none: see `--help`


def address(host: str, port: int) -> str:
    """host:port, with the brackets that an IPv6 host needs."""
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"


_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([KMGT])(?:IB)?)?", re.ASCII | re.IGNORECASE)


def size(text: str) -> int:
    """Bytes from `1073741824`, `512MiB`, `1.5GiB`. Raises argparse.ArgumentTypeError."""
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
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0–65535")
    return int(text)


def parse(argv: list[str] | None = None) -> Options:
    """Flags → Options; exits with a usage message when they do not fit."""
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
    parser.add_argument(
        "--metrics-port",
        type=_port,
        default=METRICS_PORT,
        help="Prometheus port on the loopback, 0 = off (default %(default)s)",
    )
    parser.add_argument(
        "--max-size",
        type=_max_size,
        default=MAX_SIZE,
        metavar="BYTES",
        help="limit of the data file, e.g. 20GiB (default 64GiB)",
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
    return Options(**vars(parser.parse_args(argv)))
