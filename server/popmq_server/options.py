"""Every knob of the broker: default, unit, limit, flag."""

import argparse
import pathlib
from typing import NamedTuple

from popmq_server.storage.lmdb import SYNC_MODES

HOST = "127.0.0.1"
PORT = 8081
METRICS_PORT = 9464
DATA = pathlib.Path("popmq-data")
MAX_SIZE = 64 << 30
MAX_SIZE_MIN = 16 << 20
#: How long a stopping broker lets running calls end, in seconds.
DRAIN_S = 5.0


class Options(NamedTuple):
    """What `popmq serve` takes."""

    data: pathlib.Path = DATA
    host: str = HOST
    port: int = PORT
    metrics_port: int = METRICS_PORT  # on the loopback; 0 = off
    max_size: int = MAX_SIZE  # bytes of the data file
    sync: str = "full"  # full: fsync before every OK; meta, none: see `--help`


def size(text: str) -> int:
    """Bytes from `1073741824`, `512MiB`, `64GiB`."""
    units = {"KIB": 10, "MIB": 20, "GIB": 30, "TIB": 40, "K": 10, "M": 20, "G": 30, "T": 40}
    upper = text.strip().upper()
    for unit, shift in units.items():
        if upper.endswith(unit):
            return int(float(upper.removesuffix(unit)) * (1 << shift))
    return int(upper)


def _max_size(text: str) -> int:
    value = size(text)
    if value < MAX_SIZE_MIN:
        raise argparse.ArgumentTypeError(f"at least {MAX_SIZE_MIN >> 20}MiB")
    return value


def _port(text: str) -> int:
    value = int(text)
    if not 0 <= value <= 65535:
        raise argparse.ArgumentTypeError("a port is 0–65535")
    return value


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
