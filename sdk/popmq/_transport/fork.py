"""Imports gRPC with the settings that a client needs, and detects forks that gRPC does not survive.

Only for the transport grpcio; popmq_http2 has nothing that a fork could break.

A child has the parent's memory but none of its threads. gRPC works in the child only when no thread was inside it at
the fork. With a call under way (a long poll, an ack in the background) it logs that on stderr, and from then on every
call of the child hangs, whatever its deadline. So calls under way are counted here, and a child that was forked
during one gets an error instead.

A fork that only starts a program must not fail because of gRPC either. subprocess.Popen forks when it is given
`preexec_fn`, as PySpark does to start its Java. With gRPC's default way of waiting for sockets (epoll1) the child
makes a thread that waits on a descriptor which Popen closes before the program begins: three children in a hundred
abort ("epoll_wait error: Bad file descriptor", grpc issue 43055, since 1.81). Switching gRPC's fork handlers off would
cure it and break clients that are made in a forked child. The strategy "poll", the one that gRPC documents for
programs that fork, does neither: a client has few sockets, for which both are equally fast. gRPC reads its environment
once: while it is imported.

gRPC writes log lines of its own to stderr, such as one for each failed TLS handshake. The errors of
the SDK say the same, so these lines are switched off, unless the environment sets GRPC_VERBOSITY.
"""

import os

from popmq.errors import ClientClosed, MissingLibrary

_SETTINGS = {"GRPC_POLL_STRATEGY": "poll", "GRPC_VERBOSITY": "NONE"}


def _import_grpc() -> None:
    """Imports gRPC with these settings, where the environment has none. Children do not inherit them.

    Raises MissingLibrary where the extra is not installed.
    """
    ours = {name: value for name, value in _SETTINGS.items() if not os.environ.get(name)}
    os.environ.update(ours)
    try:
        import grpc  # noqa: F401 - for what it reads while it is imported
    except ImportError as error:
        raise MissingLibrary(
            f"the transport 'grpcio' needs grpcio ({error})",
            action='install it: pip install "popmq[grpcio]"; or use transport="python"',
        ) from error
    finally:
        for name in ours:
            del os.environ[name]


_import_grpc()

#: Tokens of calls under way. A set, not a number: adding and discarding are single steps of the interpreter, and need
#: no lock, which a child would inherit locked.
_under_way: set[object] = set()
_broken = False


def begin() -> object:
    """A call starts. Returns the token for `end`."""
    token = object()
    _under_way.add(token)
    return token


def end(token: object) -> None:
    """The call has ended."""
    _under_way.discard(token)


def check() -> None:
    """Raises ClientClosed in a process that was forked during a call: gRPC would hang in it."""
    if _broken:
        raise ClientClosed(
            "this process was forked while a call of its parent was under way, which gRPC does not survive",
            action="fork before clients are used, start processes by spawn or forkserver, or use transport='python'",
        )


def _in_child() -> None:
    global _broken
    _broken = _broken or bool(_under_way)
    _under_way.clear()


if hasattr(os, "register_at_fork"):  # where there are forks
    os.register_at_fork(after_in_child=_in_child)
