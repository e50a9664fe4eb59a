"""Numbers in the pages are those of the code, and of the measurements that the repository holds.

Numbers of docs/protocol.md are compared in tests/wire/test_documents.py, settings and metrics beside their own tests.
"""

import json
import re
import statistics

import pytest

from popmq._async.transport import wire
from popmq._calls import requests as replies
from popmq._consuming import pull_options
from popmq.process_queue import FlowControl
from popmq_console import app, attempts, listening, logins
from popmq_http2.client.target import Options
from popmq_http2.limits import Limits
from popmq_http2.server import addresses, turns
from popmq_server.contract.commands import sessions
from popmq_server.embedded.loop import waiters
from popmq_server.embedded.rules.delivery import deadletter, fifo_pick, pick
from popmq_server.embedded.rules.operate import redrive
from popmq_server.embedded.rules.schedules import occurrences, schedules
from popmq_server.embedded.rules.sending import release_delayed
from popmq_server.embedded.state import lite_watch, space
from popmq_server.protocols import authentication
from popmq_server.protocols.access import known_keys
from popmq_server.protocols.native import timing
from popmq_server.protocols.rocketmq import receiving, remembered
from popmq_server.values import limits as settings
from popmq_server.values import priority, records
from popmq_verify import stages
from tests.sources import ROOT

PERFORMANCE = ROOT / "docs" / "performance.md"
MIB, HOUR_MS, DAY_MS = 1 << 20, 3_600_000, 86_400_000
BOUNDS, CLIENT, FLOW = Limits(), Options(), FlowControl()


def share(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"


#: Page → what it says with the numbers of the code.
FIGURES = {
    "console.md": (
        f"At most {app.STREAMS_MAX} pages are updated at a time, and {app.STREAMS_PER_KEY} of one access key",
        f"after {logins.IDLE_S / 60:.0f} minutes without a request of its user, {logins.LIFE_S / 3600:.0f} hours",
        f"After {attempts.FAILED_MAX} failed logins with one key from one address within a minute, or "
        f"{attempts.FAILED_ADDRESS_MAX} from one address",
        f"at most {listening.CONNECTIONS_PER_ADDRESS} connections, and all have {listening.CONNECTIONS_MAX}",
        f"not complete after {listening.REQUEST_S:.0f} s",
        f"at most {logins.LOGINS_PER_KEY} logins, and all keys have {logins.LOGINS_MAX}",
    ),
    "dead-letters.md": (
        f"at most {deadletter.DEAD_LETTERS_MAX} dead letters and {deadletter.DEAD_LETTER_BYTES_MAX // MIB} MiB of them",
        f"at most {redrive.PIECE_LETTERS} dead letters and {redrive.PIECE_BYTES // MIB} MiB of them",
        f"{settings.KEEP_MS_MAX // (365 * DAY_MS)} years",
    ),
    "delay.md": (f"{release_delayed.RELEASE_MESSAGES_MAX:,} messages per transaction",),
    "fifo.md": (f"{fifo_pick.WAITING_MAX:,} messages of a group wait in a topic",),
    "filters.md": (f"{pick.SCAN_UNITS_MAX:,} index entries, or reads up to {pick.REJECTIONS_MAX:,} messages",),
    "lite.md": (
        f"{settings.LITE_TOPICS_DEFAULT:,} by default; idle ones are removed after "
        f"{settings.LITE_TTL_MS_DEFAULT // HOUR_MS} h",
        f"lives for {lite_watch.WATCH_MS // 1000} s after the last sync",
    ),
    "operations.md": (
        f"| {share(space.STORE_LEAVES)} | {space.DISK_FREE_STORE // MIB} MiB | `Send`",
        f"| {share(space.GROW_LEAVES)} | {space.DISK_FREE_GROW // MIB} MiB | work that stores",
        f"| {share(space.POP_LEAVES)} | {space.DISK_FREE_GROW // MIB} MiB | `Pop`",
        f"| {share(space.MOVE_LEAVES)} | | work that moves",
        f"at most {pick.RETRIES_MAX:,} of them retries",
        f"Of each kind {waiters.WAITERS_PER_KEY_MAX:,} per group and topic (Pulls: per queue) and "
        f"{waiters.WAITERS_MAX:,} in all",
    ),
    "priority.md": (
        f"{settings.QUEUES_PRIORITY} by default",
        "Every tenth pop begins with the queue" if priority.LOW_FIRST_EVERY == 10 else "",
    ),
    "pull-consumer.md": (
        f"Every {pull_options.REBALANCE_S:.0f} s, and when a heartbeat",
        f"for at most {pull_options.LEAVE_S:.0f} s",
        f"end {sessions.LOCK_MS // 1000} s after their last renewal (every {pull_options.LOCK_S:.0f} s)",
        f"Every {pull_options.COMMIT_S:.0f} s and at the end",
        f"until {FLOW.count:,} messages, {FLOW.bytes // MIB} MiB, or a span of {FLOW.span:,} offsets",
        f"again every {FLOW.pause * 1000:.0f} ms",
        f"relies on a lock for {pull_options.LOCK_VALID_S:.0f} s",
    ),
    "quotas.md": (f"default {records.IN_FLIGHT_MAX:,}",),
    "requests.md": ("idle for an hour" if replies.REPLY_TTL_S == 3600 else "",),
    "rocketmq.md": (
        f"within {sessions.SESSION_LEASE_MS // 1000} s after the last call",
        f"after {sessions.SESSION_CAP_MS // HOUR_MS} h in any case",
        f"the last {remembered.FINISHED_MAX:,} since its start",
        f"{receiving.POLL_MS_MAX // 1000} s at most, and {receiving.MARGIN_MS / 1000} s before",
    ),
    "schedules.md": (
        f"at most {timing.MESSAGE_BYTES_MAX >> 10} KiB",
        f"the last {occurrences.MISSED_MAX}, in their order",
        f"at most {occurrences.COUNTED_MAX:,} of one gap",
        f"at most {schedules.SCHEDULES_MAX:,} schedules",
    ),
    "sdk.md": (
        f"within {CLIENT.keepalive_s + CLIENT.keepalive_timeout_s:.0f} seconds",
        "at most five seconds" if wire.CLOSE_S == 5 else "",
    ),
    "security.md": (
        f"a budget of {BOUNDS.budget:,} points, {BOUNDS.budget_per_s:,} come back each second",
        f"headers of a request beyond {BOUNDS.free_headers}",
        f"| {BOUNDS.headers_bytes >> 10} KiB, in at most {BOUNDS.header_frames + 1} frames",
        f"| {BOUNDS.streams:,}; further ones",
        f"in one turn of the event loop | {turns.CALLS_AT_ONCE}; the rest",
        f"| {BOUNDS.message_bytes // MIB} MiB for each, {BOUNDS.requests_bytes // MIB} MiB for the whole broker",
        f"grow by {BOUNDS.progress_bytes >> 10} KiB every {BOUNDS.keepalive_s:.0f} s",
        f"| {BOUNDS.unproved_bytes >> 10} KiB for each connection",
        f"| {BOUNDS.unsent_bytes // MIB} MiB for a connection",
        f"After {BOUNDS.stalled_s:.0f} s without progress",
        f"| {BOUNDS.connections_per_address:,} (`--connections-per-address`)",
        f"start with {addresses.CAUTIOUS_POINTS} points",
        f"a PING after {BOUNDS.keepalive_s:.0f} s of silence and {BOUNDS.keepalive_timeout_s:.0f} s to answer it",
        "held for up to half a second" if authentication.HELD_MS_MAX == 500 else "",
        "its calls are refused within a second" if known_keys.LOOK_EVERY_S == 1 else "",
    ),
    "verify.md": (f"{stages.CUTS} power cuts",),
}


@pytest.mark.parametrize(("page", "figure"), [(page, each) for page, said in FIGURES.items() for each in said])
def test_a_number_of_a_page_is_that_of_the_code(page: str, figure: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert figure
    assert figure in text


def measured(broker: str, work: str, what: str) -> float:
    """The median of a figure over the rounds of `make bench-compare`; by popmq.v1 where a broker has two protocols."""
    figures = json.loads((ROOT / "docs" / "benchmarks" / "results.json").read_text())["figures"]
    values = [
        each[what]
        for each in figures
        if (each["broker"], each["work"]) == (broker, work) and each["face"] != "rocketmq"
    ]
    return float(statistics.median(values))


def test_the_performance_page_quotes_the_last_measurement() -> None:
    table = (ROOT / "BENCHMARKS.md").read_text().partition("\n## Ratios\n")[2]
    row = r"^\| send 1, 64 callers \|.*rocketmq.v2 \| RocketMQ .*FLUSH \| ([\d.]+) \|"
    ratios = re.findall(row, table, re.MULTILINE)
    alone, together, paced = "send 1, one caller", "send 1, 64 callers", "send → received at 1,000/s"
    ours, redis, rabbit = (
        f"{measured(broker, alone, 'server_us') / measured(broker, together, 'server_us'):.1f} times"
        for broker in ("popmq-python", "redis-always", "rabbitmq-quorum")
    )
    core, median = measured("popmq-python", paced, "server_us") / 1000, measured("popmq-python", paced, "p50_ms")
    page = " ".join(PERFORMANCE.read_text().split())
    assert f"it is {ratios[0]} times RocketMQ with ASYNC_FLUSH and {ratios[1]} times with SYNC_FLUSH" in page
    assert f"takes {ours} the CPU of a send with 64 callers, with Redis {redis}, with RabbitMQ {rabbit}" in page
    assert f"take {core:.2f} of a core; from send to receive they take {median:.1f} ms in the median" in page


def test_the_table_of_the_performance_page_has_each_figure_of_the_last_measurement() -> None:
    sections = re.split("^## ", (ROOT / "BENCHMARKS.md").read_text(), flags=re.MULTILINE)
    row = r"^\| PopMQ, `python`, \S+ \| ([\d,]+) \| \S+ \| ([\d.]+) \| ([\d.]+) \| [\d.]+ \| ([\d.]+) \|"
    figures = [
        list(found)
        for section in sections
        if re.match(r"(Send|Receive \+ ack) (1|32|256), ", section)
        for found in re.findall(row, section, re.MULTILINE)
    ]
    lines = PERFORMANCE.read_text().partition("\n## Figures\n")[2].partition("\n\n**")[0].strip().splitlines()
    table = [line.strip("| ").split(" | ")[2:] for line in lines[2:]]
    assert table == figures
    assert len(table) == 9
