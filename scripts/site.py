"""Copies the pages of the documentation site to build/pages, in the layout of the repository: make site.

    README.md, ARCHITECTURE.md, …, docs/**        the pages
    what they link to outside of docs/            copied beside them, so that every link leads somewhere

MkDocs needs all pages in one folder, and README.md is not in docs/.
"""

import re
import shutil
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")


def linked(page: Path) -> set[Path]:
    """The files that a page links to. A link to a folder leads to its README.md."""
    targets = {(page.parent / link).resolve() for link in LINK.findall(page.read_text())}
    return {target / "README.md" if target.is_dir() else target for target in targets}


def main() -> None:
    pages = {*ROOT.glob("[A-Z]*.md"), *(ROOT / "docs").rglob("*.md")}
    pages |= {target for page in pages for target in linked(page)}
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in sorted(pages):
        copy = PAGES / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)


if __name__ == "__main__":
    main()
