"""From what the core leased to the answer of a Pop, with the handles that its client sends back.

See docs/decisions/0021-cancelled-pops.md.
"""

import itertools

from popmq_server.contract.commands import (
    Change,
    ChangeInvisibleTime,
    Pop,
    Popped,
)
from popmq_server.values.leased import Leased


def with_handles(leased: Leased, handles: bool) -> Popped:
    """The answer of a Pop; without `handles`, those of its rows are empty."""
    texts = leased.texts if handles else itertools.repeat(b"")
    rows = [
        (data, stored_ms, queue, offset, attempt, text)
        for (data, stored_ms, queue, offset, attempt, _), text in zip(leased.rows, texts, strict=False)
    ]
    return Popped(rows, leased.popped_ms, leased.due_ms, leased.rest, leased.replay, leased.sealed, leased.type)


def waited(popped: Leased, now_ms: int) -> Popped:
    """The answer of a Pop whose wait is over: empty, or the refusal that explains why it got no message."""
    if popped.refusal is None:
        return with_handles(popped, False)
    if popped.quota_ms > popped.popped_ms:
        popped.refusal.retry_after_ms = max(1, popped.quota_ms - now_ms)
    raise popped.refusal


def release_of(command: Pop, popped: Leased) -> ChangeInvisibleTime:
    """The command that undoes a Pop whose caller has left."""
    changes = tuple(Change(handle, "release", 0, True, "the caller went away") for handle in popped.handles)
    return ChangeInvisibleTime(command.group, changes)
