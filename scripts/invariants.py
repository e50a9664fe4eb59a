"""Writes the tables of docs/invariants.md from the table of invariants.

python -m scripts.invariants
"""

from pathlib import Path

from popmq_server.embedded.invariants.listed import COUNTED, MENDED, STEP, STORED, SUBJECTS

PAGE = Path(__file__).parent.parent / "docs" / "invariants.md"
BEGIN = "<!-- From here on written by `python -m scripts.invariants`. -->\n"
#: The last column: the rows of the first table of the page.
REPAIRS = {MENDED: "repair", STORED: "backup", COUNTED: "restart", STEP: "report"}


def written(page: str) -> str:
    """The page with its tables as the table of invariants has them."""
    head = page.partition(BEGIN)[0]
    parts = [head + BEGIN]
    for subject, several in SUBJECTS.items():
        parts.append(f"\n## {subject}\n\n| Invariant | What holds | Do |\n|---|---|---|\n")
        parts += [f"| `{one.name}` | {one.sentence} | {REPAIRS[one.repair]} |\n" for one in several]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
