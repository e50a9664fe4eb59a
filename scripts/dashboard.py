"""Writes deploy/monitoring/dashboard.json, the Grafana dashboard: three panels in a line, or four of one number each.

python scripts/dashboard.py            write the file
python scripts/dashboard.py --check    write nothing; exit 1 when the file differs
"""

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

FILE = Path(__file__).parent.parent / "deploy" / "monitoring" / "dashboard.json"
WIDTH, HEIGHT = 24, 8
SOURCE = {"type": "prometheus", "uid": "${source}"}
BROKER = 'instance=~"$broker"'
GROUP = f'{BROKER}, group=~"$group"'


class Panel(NamedTuple):
    """One chart. `queries`: PromQL and legend."""

    title: str
    unit: str
    queries: tuple[tuple[str, str], ...]
    description: str = ""
    kind: str = "timeseries"


def late(metric: str) -> tuple[tuple[str, str], ...]:
    """Quantiles of a histogram."""
    rate = f"sum by (le) (rate({metric}_bucket{{{BROKER}}}[$__rate_interval]))"
    return tuple((f"histogram_quantile({share}, {rate})", f"p{share * 100:g}") for share in (0.5, 0.99))


def messages(method: str) -> str:
    return f'sum(rate(popmq_messages_total{{{BROKER}, method="{method}"}}[$__rate_interval]))'


ROWS: dict[str, tuple[Panel, ...]] = {
    "Overview": (
        Panel("Broker", "none", ((f"up{{{BROKER}}}", "{{instance}}"),), "1 = answers scrapes", "stat"),
        Panel("Ready", "short", ((f"sum(popmq_group_ready{{{BROKER}}})", "messages"),), "Not popped yet", "stat"),
        Panel("Dead letters", "short", ((f"sum(popmq_group_dead{{{BROKER}}})", "messages"),), "", "stat"),
        Panel(
            "Store",
            "percentunit",
            ((f"popmq_store_used_bytes{{{BROKER}}} / popmq_store_limit_bytes{{{BROKER}}}", "{{instance}}"),),
            "Sends are refused from 85 % on",
            "stat",
        ),
    ),
    "Traffic": (
        Panel(
            "Messages a second",
            "short",
            tuple((messages(method), method) for method in ("Send", "Pop", "Pull", "Ack", "SendBack")),
        ),
        Panel(
            "Bytes a second",
            "Bps",
            ((f"sum by (method) (rate(popmq_message_bytes_total{{{BROKER}}}[$__rate_interval]))", "{{method}}"),),
        ),
        Panel(
            "Refusals a second",
            "short",
            ((f"sum by (code) (rate(popmq_refusals_total{{{BROKER}}}[$__rate_interval]))", "{{code}}"),),
            "By code; HANDLE_LAPSED is a late ack, a normal outcome",
        ),
    ),
    "Groups": (
        Panel("Ready", "short", ((f"popmq_group_ready{{{GROUP}}}", "{{group}} {{topic}}"),)),
        Panel("In flight", "short", ((f"popmq_group_in_flight{{{GROUP}}}", "{{group}} {{topic}}"),)),
        Panel(
            "Oldest unfinished message",
            "s",
            ((f"popmq_group_oldest_age_seconds{{{GROUP}}}", "{{group}} {{topic}}"),),
        ),
        Panel(
            "Retry and backoff",
            "short",
            (
                (f"popmq_group_retry{{{GROUP}}}", "retry {{group}} {{topic}}"),
                (f"popmq_group_backoff{{{GROUP}}}", "backoff {{group}} {{topic}}"),
            ),
        ),
        Panel("Dead letters", "short", ((f"popmq_group_dead{{{GROUP}}}", "{{group}}"),)),
        Panel(
            "Dropped before they were finished",
            "short",
            ((f"increase(popmq_group_dropped_total{{{GROUP}}}[1h])", "{{group}} {{topic}}"),),
            "In the last hour, by retention",
        ),
    ),
    "Latency": (
        Panel("Commit, fsync included", "s", late("popmq_commit_seconds")),
        Panel("Expired leases, after their deadline", "s", late("popmq_lease_lateness_seconds")),
        Panel("Delayed messages, after their time", "s", late("popmq_delayed_lateness_seconds")),
        Panel(
            "Send and Ack, p99",
            "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, method) "
                    f'(rate(popmq_call_seconds_bucket{{{BROKER}, method=~"Send|Ack"}}[$__rate_interval])))',
                    "{{method}}",
                ),
            ),
            "Pop is left out: its time is mostly that of the wait",
        ),
        Panel(
            "Commands in one commit",
            "short",
            (
                (
                    f"sum(rate(popmq_commit_commands_sum{{{BROKER}}}[$__rate_interval])) / "
                    f"sum(rate(popmq_commit_commands_count{{{BROKER}}}[$__rate_interval]))",
                    "mean",
                ),
            ),
            "Commands that share one fsync",
        ),
        Panel(
            "Fsyncs a second",
            "short",
            ((f"rate(popmq_fsyncs_total{{{BROKER}}}[$__rate_interval])", "{{instance}}"),),
        ),
    ),
    "Gateway": (
        Panel(
            "Calls to brokers a second",
            "short",
            (
                (
                    f"sum by (broker, code) (rate(popmq_broker_calls_total{{{BROKER}}}[$__rate_interval]))",
                    "{{broker}} {{code}}",
                ),
            ),
            "By response code, or by what went wrong",
        ),
        Panel(
            "Calls to brokers, p99",
            "s",
            (
                (
                    "histogram_quantile(0.99, sum by (le, broker) "
                    f"(rate(popmq_broker_call_seconds_bucket{{{BROKER}}}[$__rate_interval])))",
                    "{{broker}}",
                ),
            ),
            "Without those that wait for messages",
        ),
        Panel("In flight at brokers", "short", ((f"popmq_broker_in_flight{{{BROKER}}}", "{{broker}} {{instance}}"),)),
        Panel(
            "Brokers not reached",
            "short",
            ((f"popmq_broker_breaker_open{{{BROKER}}}", "{{broker}} {{instance}} {{worker}}"),),
            "1 = the broker is not called, and tried again every 1–5 s",
        ),
        Panel(
            "Age of what name servers said",
            "s",
            ((f"popmq_route_age_seconds{{{BROKER}}}", "{{instance}} {{worker}}"),),
            "More than 30 s: none of them answers",
        ),
        Panel(
            "Waits and members",
            "short",
            (
                (f"popmq_parked_waits{{{BROKER}}}", "parked {{instance}}"),
                (f"popmq_member_connections{{{BROKER}}}", "members {{instance}}"),
                (f"sum by (instance) (popmq_worker_up{{{BROKER}}})", "workers {{instance}}"),
            ),
        ),
    ),
    "Space and process": (
        Panel(
            "Store",
            "bytes",
            (
                (f"popmq_store_used_bytes{{{BROKER}}}", "used"),
                (f"popmq_store_limit_bytes{{{BROKER}}}", "limit"),
                (f"popmq_store_disk_free_bytes{{{BROKER}}}", "disk free"),
            ),
        ),
        Panel("Topics", "bytes", ((f"topk(10, popmq_topic_bytes{{{BROKER}}})", "{{topic}}"),), "The ten largest"),
        Panel("Memory", "bytes", ((f"process_resident_memory_bytes{{{BROKER}}}", "{{instance}}"),)),
        Panel(
            "CPU",
            "percentunit",
            ((f"rate(process_cpu_seconds_total{{{BROKER}}}[$__rate_interval])", "{{instance}}"),),
            "1 = one core",
        ),
        Panel("Open files", "short", ((f"process_open_fds{{{BROKER}}}", "{{instance}}"),)),
        Panel("Parked calls", "short", ((f"popmq_waiters{{{BROKER}}}", "{{instance}}"),), "Long polls"),
    ),
}


def panel(number: int, one: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": SOURCE, "expr": query, "legendFormat": legend}
        for index, (query, legend) in enumerate(one.queries)
    ]
    return {
        "id": number,
        "type": one.kind,
        "title": one.title,
        "description": one.description,
        "datasource": SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": one.unit, "min": 0}, "overrides": []},
        "targets": targets,
    }


def panels() -> list[dict[str, Any]]:
    """All panels, placed from left to right and from the top down."""
    made: list[dict[str, Any]] = []
    y = 0
    for title, row in ROWS.items():
        made.append({"id": len(made) + 1, "type": "row", "title": title, "gridPos": place(0, y, WIDTH, 1)})
        y += 1
        across = 4 if row[0].kind == "stat" else 3
        height = HEIGHT // 2 if row[0].kind == "stat" else HEIGHT
        for index, one in enumerate(row):
            column = index % across
            width = WIDTH // across
            made.append(panel(len(made) + 1, one, place(column * width, y, width, height)))
            if column == across - 1:
                y += height
    return made


def place(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "datasource": SOURCE,
        "query": query,
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }


def dashboard() -> str:
    source = {"name": "source", "type": "datasource", "query": "prometheus"}
    found = {
        "uid": "popmq",
        "title": "PopMQ",
        "tags": ["popmq"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                source,
                variable("broker", "label_values(popmq_build_info, instance)"),
                variable("group", "label_values(popmq_group_ready, group)"),
            ]
        },
        "panels": panels(),
    }
    return json.dumps(found, indent=1) + "\n"


def main() -> int:
    if "--check" not in sys.argv[1:]:
        FILE.write_text(dashboard())
        return 0
    if FILE.read_text() == dashboard():
        return 0
    print("deploy/monitoring/dashboard.json differs: run python scripts/dashboard.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
