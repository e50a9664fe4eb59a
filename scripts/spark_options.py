"""Writes the tables of options in docs/spark.md from the connector's own tables.

python scripts/spark_options.py            write the page
python scripts/spark_options.py --check    write nothing; exit 1 when the page differs
"""

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from popmq_spark.offsets.offsets_options import BATCH_OPTIONS, STREAM_OPTIONS
from popmq_spark.options import OPTIONS, Option
from popmq_spark.writing.write_options import WRITE_OPTIONS

PAGE = Path(__file__).parent.parent / "docs" / "spark.md"


def row(option: Option, note: str = "") -> str:
    default = "required" if option.default is None else option.default or "unset"
    return f"| `{option.name}` | {default} | {note}{option.text} |\n"


def table(options: Iterable[Option]) -> str:
    """The table of one mode. Options that only another mode has are left out."""
    return "| option | default | |\n|---|---|---|\n" + "".join(row(option) for option in options if option.text)


def table_by_offsets() -> str:
    """The table of mode=offsets, for streams and batch reads; a row names the one that it is limited to."""
    streams, batches = ({option.name: option for option in options} for options in (STREAM_OPTIONS, BATCH_OPTIONS))
    rows = [row(option, "" if name in batches else "streams: ") for name, option in streams.items()]
    rows += [row(option, "`spark.read`: ") for name, option in batches.items() if name not in streams]
    return "| option | default | |\n|---|---|---|\n" + "".join(rows)


TABLES = {"lease": table(OPTIONS), "offsets": table_by_offsets(), "write": table(WRITE_OPTIONS)}


def written(page: str) -> str:
    """The text of the page with the tables of today's options, each below the comment that names it."""
    for name, text in TABLES.items():
        mark = f"<!-- options: {name} -->\n\n"
        page = re.sub(rf"{mark}(\|.*\n)*\n*", lambda _, new=f"{mark}{text}\n": new, page)  # type: ignore[misc]  # a default of a lambda has no type
    return page


def main() -> int:
    before = PAGE.read_text()
    after = written(before)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after)
        return 0
    if before != after:
        print("docs/spark.md differs from the connector: run python scripts/spark_options.py", file=sys.stderr)
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
