"""Numbers in the pages are those of the code, and of the measurements that the repository holds.

Numbers of docs/protocol.md are compared in tests/wire/test_documents.py, settings and metrics beside their own tests.
"""

import re

import pytest

from popmq._consuming import pull_settings
from popmq.process_queue import FlowControl
from popmq_console import app, attempts, listening, logins
from popmq_http2.client.target import Options
from popmq_http2.limits import Limits
from popmq_http2.server import addresses, turns
from popmq_server.contract.commands import sessions
from popmq_server.embedded.loop import long_poll
from popmq_server.embedded.rules.delivery import deadletter, fifo_pick, pick, session_lease
from popmq_server.embedded.rules.operate import redrive
from popmq_server.embedded.rules.schedules import occurrences, schedules
from popmq_server.embedded.rules.sending import release_delayed
from popmq_server.embedded.state import lite_watch, space
from popmq_server.protocols.native import pending
from popmq_server.protocols.rocketmq import receiving, remembered
from popmq_server.values import limits as settings
from popmq_server.values import records
from popmq_verify import stages
from tests.sources import ROOT

PERFORMANCE = ROOT / "docs" / "performance.md"
MIB, HOUR_MS, DAY_MS = 1 << 20, 3_600_000, 86_400_000
BOUNDS, CLIENT, FLOW = Limits(), Options(), FlowControl()


def share(left: float) -> str:
    return f"{100 * (1 - left):.0f} %"


#: Page → numbers of the code that it has to name, with their units. How a sentence goes on is its own matter.
FIGURES = {
    "console.md": (
        f"{app.STREAMS_MAX}",
        f"{app.STREAMS_PER_KEY}",
        f"{logins.IDLE_S / 60:.0f} minutes",
        f"{logins.LIFE_S / 3600:.0f} hours",
        f"{attempts.FAILED_MAX}",
        f"{attempts.FAILED_ADDRESS_MAX}",
        f"{listening.CONNECTIONS_PER_ADDRESS}",
        f"{listening.CONNECTIONS_MAX}",
        f"{listening.REQUEST_S:.0f} s",
        f"{logins.LOGINS_PER_KEY}",
        f"{logins.LOGINS_MAX}",
    ),
    "dead-letters.md": (
        f"{deadletter.DEAD_LETTERS_MAX}",
        f"{deadletter.DEAD_LETTER_BYTES_MAX // MIB} MiB",
        f"{redrive.PIECE_LETTERS}",
        f"{redrive.PIECE_BYTES // MIB} MiB",
        f"{settings.KEEP_MS_MAX // (365 * DAY_MS)} years",
    ),
    "delay.md": (f"{release_delayed.RELEASE_MESSAGES_MAX:,}",),
    "fifo.md": (f"{fifo_pick.WAITING_MAX:,}",),
    "filters.md": (
        f"{pick.SCAN_UNITS_MAX:,}",
        f"{pick.REJECTIONS_MAX:,}",
    ),
    "lite.md": (
        f"{settings.LITE_TOPICS_DEFAULT:,}",
        f"{settings.LITE_TTL_MS_DEFAULT // HOUR_MS} h",
        f"{lite_watch.WATCH_MS // 1000} s",
    ),
    "operations.md": (
        f"{share(space.STORE_LEAVES)}",
        f"{space.DISK_FREE_STORE // MIB} MiB",
        f"{share(space.GROW_LEAVES)}",
        f"{space.DISK_FREE_GROW // MIB} MiB",
        f"{share(space.POP_LEAVES)}",
        f"{share(space.MOVE_LEAVES)}",
        f"{pick.RETRIES_MAX:,}",
        f"{long_poll.WAITERS_PER_KEY_MAX:,}",
        f"{long_poll.WAITERS_MAX:,}",
    ),
    "priority.md": (f"{settings.QUEUES_PRIORITY}",),
    "pull-consumer.md": (
        f"{pull_settings.REBALANCE_S:.0f} s",
        f"{pull_settings.LEAVE_S:.0f} s",
        f"{sessions.LOCK_MS // 1000} s",
        f"{pull_settings.LOCK_S:.0f} s",
        f"{pull_settings.COMMIT_S:.0f} s",
        f"{FLOW.count:,}",
        f"{FLOW.bytes // MIB} MiB",
        f"{FLOW.span:,}",
        f"{FLOW.pause * 1000:.0f} ms",
        f"{pull_settings.LOCK_VALID_S:.0f} s",
    ),
    "quotas.md": (f"{records.IN_FLIGHT_MAX:,}",),
    "rocketmq.md": (
        f"{session_lease.SESSION_LEASE_MS // 1000} s",
        f"{session_lease.SESSION_CAP_MS // HOUR_MS} h",
        f"{remembered.FINISHED_MAX:,}",
        f"{receiving.POLL_MS_MAX // 1000} s",
        f"{receiving.MARGIN_MS / 1000} s",
    ),
    "schedules.md": (
        f"{pending.MESSAGE_BYTES_MAX >> 10} KiB",
        f"{occurrences.MISSED_MAX}",
        f"{occurrences.COUNTED_MAX:,}",
        f"{schedules.SCHEDULES_MAX:,}",
    ),
    "sdk.md": (f"{CLIENT.keepalive_s + CLIENT.keepalive_timeout_s:.0f}",),
    "security.md": (
        f"{BOUNDS.budget:,} points",
        f"{BOUNDS.budget_per_s:,}",
        f"{BOUNDS.free_headers}",
        f"{BOUNDS.headers_bytes >> 10} KiB",
        f"{BOUNDS.header_frames + 1}",
        f"{BOUNDS.streams:,}",
        f"{turns.CALLS_AT_ONCE}",
        f"{BOUNDS.message_bytes // MIB} MiB",
        f"{BOUNDS.requests_bytes // MIB} MiB",
        f"{BOUNDS.progress_bytes >> 10} KiB",
        f"{BOUNDS.keepalive_s:.0f} s",
        f"{BOUNDS.unproved_bytes >> 10} KiB",
        f"{BOUNDS.unsent_bytes // MIB} MiB",
        f"{BOUNDS.stalled_s:.0f} s",
        f"{BOUNDS.connections_per_address:,}",
        f"{addresses.CAUTIOUS_POINTS} points",
        f"{BOUNDS.keepalive_timeout_s:.0f} s",
    ),
    "verify.md": (f"{stages.CUTS} power cuts",),
}


@pytest.mark.parametrize(("page", "figure"), [(page, each) for page, said in FIGURES.items() for each in said])
def test_a_number_of_a_page_is_that_of_the_code(page: str, figure: str) -> None:
    text = " ".join((ROOT / "docs" / page).read_text().split())
    assert re.search(rf"(?<![\d,.]){re.escape(figure)}(?![\d])", text)


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
