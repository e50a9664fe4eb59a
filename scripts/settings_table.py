"""Writes the table of settings in docs/operations.md from the broker's own table, `settings/table.py`.

python scripts/settings_table.py            write the page
python scripts/settings_table.py --check    write nothing; exit 1 when the page differs
"""

import re
import sys
from pathlib import Path

from popmq_server.settings import SETTINGS, Setting

PAGE = Path(__file__).parent.parent / "docs" / "operations.md"
HEAD = "| flag | variable | key | default | SIGHUP | meaning |\n|---|---|---|---|---|---|\n"


def row(setting: Setting) -> str:
    names = f"`{setting.flag}` | `{setting.variable}` | `{setting.name}`"
    return f"| {names} | {setting.shown} | {setting.reload} | {setting.meaning} |\n"


def written(page: str) -> str:
    """The text of the page with the table of today's settings."""
    table = HEAD + "".join(map(row, SETTINGS))
    return re.sub(rf"{re.escape(HEAD)}(\|.*\n)*", lambda _: table, page)


def main() -> int:
    before = PAGE.read_text()
    after = written(before)
    if "--check" not in sys.argv[1:]:
        PAGE.write_text(after)
        return 0
    if before != after:
        print("docs/operations.md differs from the table: run python scripts/settings_table.py", file=sys.stderr)
    return int(before != after)


if __name__ == "__main__":
    sys.exit(main())
