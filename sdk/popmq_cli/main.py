"""Entry point of `popmq`. Imports the command line late, so that a missing extra gives a message, not a traceback."""

import codecs
import io
import os
import sys

from popmq_cli.shared import signals


def _open_streams() -> None:
    """Opens standard streams that the caller has closed on no file: a socket or the store would get their numbers.

    A terminal or a pipe that is not UTF-8 gets escapes for what it does not have.
    """
    for name, mode in ("stdin", "r"), ("stdout", "w"), ("stderr", "w"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # it is open until the end of the process
    if isinstance(sys.stdout, io.TextIOWrapper) and codecs.lookup(sys.stdout.encoding).name != "utf-8":
        sys.stdout.reconfigure(errors="backslashreplace")  # as standard error: – is \u2013, which JSON knows too


def main() -> None:
    """Runs the command line; exits with one of the codes of popmq_cli.shared.exits.

    A broker has thousands of sockets and forks nothing: it keeps gRPC's own way of waiting, unlike the client
    (popmq/_transport/fork.py). gRPC's log lines, such as one for each failed TLS handshake, are off in both.
    """
    signals.listen()  # first of all: the imports take a while
    try:
        _run()
    except signals.Terminated as ended:
        sys.exit(128 + ended.number)


def _run() -> None:
    _open_streams()
    if sys.argv[1:2] == ["serve"]:
        os.environ.setdefault("GRPC_POLL_STRATEGY", "all")
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        from popmq_cli.commands import popmq
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        print('popmq: the command line needs click and rich: pip install "popmq[cli]"', file=sys.stderr)
        if sys.argv[1:2] == ["serve"]:
            print('popmq: and `popmq serve` the broker: pip install "popmq[server]"', file=sys.stderr)
        sys.exit(1)
    popmq(prog_name="popmq")
