"""A broker whose retention runs constantly: the same code with shorter times, for campaigns of a few minutes.

    python -m popmq_verify.process.impatient FLAGS OF THE BROKER

Housekeeping runs five times a second instead of once a minute, a topic may keep its messages for a third of a second,
and messages of a chunk that a late lease holds are copied after a second instead of an hour.
"""

import sys

from popmq_server import __main__
from popmq_server.embedded.rules.retention import kept
from popmq_server.embedded.writer import housekeeping
from popmq_server.values import limits

TICK_MS = 200
KEEP_MS = 300
KEEP_COPY_AFTER_MS = 1_000

if __name__ == "__main__":
    housekeeping.TICK_MS = TICK_MS
    limits.KEEP_MS_MIN = KEEP_MS
    kept.KEEP_COPY_AFTER_MS = KEEP_COPY_AFTER_MS
    sys.exit(__main__.main())
