"""`make simulate`: runs seeds, one after the other, and shows those that failed.

python -m tests.simulated [--seeds 10000] [--from 0] [--seed N] [--minutes M]
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulated.story import Outcome, run

#: Seeds that a worker gets at a time.
CHUNK = 25
#: Seconds after which a chunk is stuck outside of virtual time: its process shows where, and ends, and the run with it.
STUCK_S = 900.0


def runs(seeds: range) -> tuple[list[Outcome], Counter[str]]:
    """The failed ones, and the sum of what happened in all."""
    faulthandler.dump_traceback_later(STUCK_S, exit=True)
    outcomes = [run(seed) for seed in seeds]
    faulthandler.cancel_dump_traceback_later()
    return [one for one in outcomes if one.findings], sum((one.counts for one in outcomes), Counter[str]())


def main() -> int:
    reader = argparse.ArgumentParser()
    reader.add_argument("--seeds", type=int, default=10_000)
    reader.add_argument("--from", type=int, default=0, dest="first")
    reader.add_argument("--seed", type=int)
    reader.add_argument("--workers", type=int, default=os.cpu_count())
    asked = reader.parse_args()
    if asked.seed is not None:
        outcome = run(asked.seed)
        print(outcome if outcome.findings else f"seed {asked.seed}: nothing found", f"\ntrace {outcome.trace}")
        return 1 if outcome.findings else 0
    began, failed, counts, done = time.monotonic(), 0, Counter[str](), 0
    last = asked.first + asked.seeds
    parts = [range(first, min(first + CHUNK, last)) for first in range(asked.first, last, CHUNK)]
    with ProcessPoolExecutor(asked.workers) as pool:
        for part in as_completed([pool.submit(runs, one) for one in parts]):
            found, counted = part.result()
            counts += counted
            done += CHUNK
            failed += len(found)
            for one in found:
                print(one, flush=True)
    took = time.monotonic() - began
    for name, count in sorted(counts.items()):
        print(f"  {name:<30}{count:>12,}")
    print(f"simulate: {asked.seeds:,} seeds, {failed} failed, in {took:.0f} s ({asked.seeds / took:.1f} a second)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
