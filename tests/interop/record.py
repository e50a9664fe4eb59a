"""Runs scenarios from the command line, prints a table client × scenario, and can keep the outcomes.

python -m tests.interop.record                                   every client and scenario against PopMQ
python -m tests.interop.record --clients python -k fifo          some of them
ROCKETMQ_ENDPOINT=… ROCKETMQ_ADMIN=… python -m tests.interop.record --keep "5.3.3"
                                                                 a running server; writes reference.json
"""

import argparse
import json
import tempfile
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from tests.interop.builds import BUILDS
from tests.interop.running import AT_ONCE, Result, Runs
from tests.interop.scenarios import SCENARIOS
from tests.interop.targets import running

KEPT = Path(__file__).parent / "reference.json"


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    words.add_argument("--clients", default=",".join(BUILDS))
    words.add_argument("-k", default="", help="only scenarios whose name contains this")
    words.add_argument("--one-by-one", action="store_true", help="not several at a time")
    words.add_argument("--keep", default="", metavar="VERSION", help="write reference.json")
    asked = words.parse_args()
    clients = asked.clients.split(",")
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(Path(folder), running(), 1 if asked.one_by_one else AT_ONCE)
        begun = {
            (client, name): runs.begin(client, SCENARIOS[name])
            for client in clients
            for name in SCENARIOS
            if asked.k in name
        }
        results = {key: _told(*key, future) for key, future in begun.items()}
        runs.close()
    print(table({key: result.word(SCENARIOS[key[1]].expected(key[0])) for key, result in results.items()}))
    if asked.keep:
        keep(asked.keep, results)


def _told(client: str, name: str, future: Future[Result]) -> Result:
    result, expected = future.result(), SCENARIOS[name].expected(client)
    word = result.word(expected)
    print(f"{client} {name}: {word} {result.skipped}{_last(result.failed)}", flush=True)
    if result.outcome and word == "differs":
        for key, value in result.outcome.items():
            if value != expected.get(key):
                print(f"    {key}: {value!r}, expected {expected.get(key)!r}", flush=True)
    return result


def _last(trace: str) -> str:
    return trace.strip().splitlines()[-1] if trace else ""


def keep(version: str, results: dict[tuple[str, str], Result]) -> None:
    """The outcomes that came, over those that were kept before; a scenario that did not run is not told."""
    kept: dict[str, Any] = json.loads(KEPT.read_text()) if KEPT.exists() else {"outcomes": {}}
    kept["version"] = version
    for (client, name), result in results.items():
        if result.outcome is not None:
            kept["outcomes"].setdefault(name, {})[client] = result.outcome
        elif result.failed:
            kept["outcomes"].setdefault(name, {})[client] = {"failed": _last(result.failed)}
        else:
            kept["outcomes"].get(name, {}).pop(client, None)
    kept["outcomes"] = dict(sorted(kept["outcomes"].items()))
    KEPT.write_text(json.dumps(kept, indent=1, ensure_ascii=False, sort_keys=True) + "\n")


def table(words: dict[tuple[str, str], str]) -> str:
    """Rows are scenarios, columns are clients."""
    clients = list(dict.fromkeys(client for client, _ in words))
    names = list(dict.fromkeys(name for _, name in words))
    width = max(map(len, names), default=0)
    lines = [" " * width + "".join(f"  {client:8}" for client in clients)]
    lines += [f"{name:{width}}" + "".join(f"  {words.get((c, name), ''):8}" for c in clients) for name in names]
    return "\n".join(line.rstrip() for line in lines)


if __name__ == "__main__":
    main()
