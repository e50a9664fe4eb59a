"""Results of tasks in a group that keeps results (docs/results.md), for frameworks that store results themselves.

ack of a task, with its result ───────────────────────┐
result without an ack (progress; other brokers) ──────┼──▶ %RESULT%group: id → body
dead letter of a task ────────────────────────────────┘                   id → reason

See docs/decisions/0061-dramatiq-and-taskiq.md.
"""

import re
import time

import popmq
from popmq.outcome import RESULT_BYTES_MAX

#: The shortest time for which a group keeps results, in seconds.
KEEP_S_MIN = 60.0
_TTL = re.compile(r"; ttl=(\d+)\Z")


def result_of(body: bytes, ttl_ms: int, content_type: str = "application/octet-stream") -> popmq.Result | None:
    """A result that counts for `ttl_ms` milliseconds; None: it is larger than the 256 KiB that a group keeps."""
    if len(body) > RESULT_BYTES_MAX:
        return None
    return popmq.Result(body, content_type=f"{content_type}; ttl={ttl_ms}")


def counts(result: popmq.Result) -> bool:
    """Whether the ttl of a stored result is not over. Failed results have none: their group decides."""
    ttl = _TTL.search(result.content_type)
    return ttl is None or result.stored_ms + int(ttl[1]) > time.time() * 1000


def keep_for(client: popmq.Client, group: str, seconds: float) -> None:
    """Lets a group keep results for at least so long. Without the right `admin` it stays as it is."""
    keep = max(seconds, KEEP_S_MIN)
    try:
        if client.groups.get(group).results_keep < keep:
            client.groups.update(group, results_keep=keep)
    except popmq.errors.Denied:
        pass


async def keep_for_async(client: popmq.AsyncClient, group: str, seconds: float) -> None:
    """The same with an AsyncClient."""
    keep = max(seconds, KEEP_S_MIN)
    try:
        if (await client.groups.get(group)).results_keep < keep:
            await client.groups.update(group, results_keep=keep)
    except popmq.errors.Denied:
        pass
