"""Runs scenarios from the command line, prints a table client × scenario, and can keep the outcomes.

python -m tests.interop.record                                   every client and scenario against PopMQ
python -m tests.interop.record --clients python -k fifo          some of them
python -m tests.interop.record --on proxy,gateway --keep 5.3.3   both doors to a cluster; writes cluster.json, and the
                                                                 table of docs/rocketmq.md
ROCKETMQ_ENDPOINT=… ROCKETMQ_ADMIN=… python -m tests.interop.record --keep 5.3.3
                                                                 a running server; writes reference.json
"""

import argparse
import tempfile
from concurrent.futures import Future
from pathlib import Path

from harness.broker_process import ROOT
from tests.interop.builds import BUILDS
from tests.interop.kept import both_doors, keep_cluster, keep_reference, last_line, table
from tests.interop.running import AT_ONCE, Result, Runs
from tests.interop.scenarios import SCENARIOS
from tests.interop.servers import EMBEDDED, GATEWAY, PROXY, servers
from tests.interop.targets import running

PAGE = ROOT / "docs" / "rocketmq.md"
#: The lines around the table of both doors in the page.
BEGIN, END = "<!-- as tests/interop/cluster.json has it -->\n", "\n<!-- end -->"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--on", default=EMBEDDED, help=f"{EMBEDDED}, {GATEWAY}, {PROXY}, or several")
    words.add_argument("--clients", default=",".join(BUILDS))
    words.add_argument("-k", default="", help="only scenarios whose name contains this")
    words.add_argument("--at-once", type=int, default=AT_ONCE, help=f"scenarios at a time; {AT_ONCE}")
    words.add_argument("--keep", default="", metavar="VERSION", help="write reference.json or cluster.json")
    asked = words.parse_args()
    for kind in asked.on.split(","):
        results = _run(kind, asked.clients.split(","), asked.k, asked.at_once)
        print(kind)
        print(table({key: result.word(SCENARIOS[key[1]].expected(key[0])) for key, result in results.items()}))
        if asked.keep and running():
            keep_reference(asked.keep, results)
        elif asked.keep and kind != EMBEDDED:
            keep_cluster(asked.keep, kind, results)
    if asked.keep and not running():
        write_page()


def _run(kind: str, clients: list[str], part: str, at_once: int) -> dict[tuple[str, str], Result]:
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), servers(kind, Path(folder)), at_once)
        try:
            begun = {
                (client, name): runs.begin(client, SCENARIOS[name])
                for client in clients
                for name in SCENARIOS
                if part in name
            }
            return {key: _told(*key, future) for key, future in begun.items()}
        finally:
            runs.close()


def _told(client: str, name: str, future: Future[Result]) -> Result:
    result, expected = future.result(), SCENARIOS[name].expected(client)
    word = result.word(expected)
    print(f"{client} {name}: {word} {result.skipped}{last_line(result.failed)}", flush=True)
    if result.outcome and word == "differs":
        for key, value in result.outcome.items():
            if value != expected.get(key):
                print(f"    {key}: {value!r}, expected {expected.get(key)!r}", flush=True)
    return result


def write_page() -> None:
    """The table of both doors, as kept, into the page."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}{both_doors()}{END}{after}")


if __name__ == "__main__":
    main()
