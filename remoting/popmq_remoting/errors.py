"""What goes wrong in a call, and whether the broker may have done what it asked for.

    RemotingError
     ├ BadFormat        bytes or texts that break the format
     ├ Unreachable      no connection to the address; nothing was sent
     ├ TooBusy          too much is under way, here or there; nothing was done; `retry_after_ms` says when to retry
     ├ ConnectionLost   the connection ended before the answer came                          maybe done
     ├ DeadlineOver     the deadline came before the answer; maybe done if the request had been sent
     └ BrokerRefused    the broker answered with a code that the caller did not expect

Only the caller knows whether a request may be repeated. `maybe_done` is False when the broker surely did nothing.
"""

from __future__ import annotations


class RemotingError(Exception):
    """Base of all errors of this package."""

    #: Whether the broker may have carried out the request, although no answer says so.
    maybe_done = False


class BadFormat(RemotingError, ValueError):
    """Bytes or text that are not of the format."""


class Unreachable(RemotingError):
    """No connection; nothing was sent."""


class TooBusy(RemotingError):
    """Too much is under way. Nothing was done."""

    def __init__(self, text: str, retry_after_ms: int) -> None:
        super().__init__(text)
        self.retry_after_ms = retry_after_ms


class ConnectionLost(RemotingError):
    """The connection ended between the request and its answer."""

    maybe_done = True


class DeadlineOver(RemotingError):
    """The deadline came before the answer."""

    def __init__(self, text: str, maybe_done: bool) -> None:
        super().__init__(text)
        self.maybe_done = maybe_done


class BrokerRefused(RemotingError):
    """An answer with a code that the caller did not expect. What the broker had to do is not done, or not entirely."""

    def __init__(self, code: int, remark: str, where: str = "") -> None:
        super().__init__(f"{where or 'the broker'} answered with code {code}: {remark or 'no remark'}")
        self.code = code
        self.remark = remark
