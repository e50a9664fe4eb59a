"""Opens a store and takes everything out of it. Runs with the code of any release, so it uses only what the first has.

    python drain.py FOLDER      with PYTHONPATH at the release (handed_back.py)

Prints one JSON line: the start's refusal, or what each group got, with what the release's own check finds afterwards.
"""

import json
import sys
from pathlib import Path

from popmq_server.errors import StartError
from tests.engine.rig import HOUR, MINUTE, Rig, bodies

#: Topic and group.
READ = (("orders", "billing"), ("orders", "audit"), ("events", "lake"), ("bad", "careful"), ("logs", "reader"))
HOURS = 24


def drained(folder: Path) -> dict[str, object]:
    """What the groups get in a day, acked as it comes; a message is sent and delivered too."""
    try:
        rig = Rig(folder)
    except StartError as refusal:
        return {"refused": str(refusal)}
    rig.send("sent here", topic="orders")
    got: dict[str, list[str]] = {group: [] for _, group in READ}
    for _ in range(HOURS):
        for topic, group in READ:
            while rows := rig.pop(32, topic, group, invisible_ms=MINUTE):
                got[group] += bodies(rows)
                assert rig.ack(rows, group) == [None] * len(rows)
        rig.advance(HOUR)
    findings = rig.findings()
    rig.core.close()
    return {"got": {group: sorted(found) for group, found in got.items()}, "findings": findings}


if __name__ == "__main__":
    print(json.dumps(drained(Path(sys.argv[1]))))
