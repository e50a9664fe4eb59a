"""Copies the pages of the documentation site to build/pages, in the layout of the repository: make site.

    README.md, ARCHITECTURE.md, …, docs/**        the pages
    what they link to outside of docs/            copied beside them, so that every link leads somewhere
    docs/api/*.md                                 written here: the public names of popmq, whose signatures and
                                                  docstrings mkdocstrings reads from the source

MkDocs needs all pages in one folder, and README.md is not in docs/.
"""

import re
import shutil
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

import popmq

ROOT = Path(__file__).resolve().parent.parent
PAGES = ROOT / "build" / "pages"
LINK = re.compile(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)")
#: Pages of the reference: file, title, names. `values` has all public names that no other page has.
REFERENCE: dict[str, tuple[str, Sequence[str]]] = {
    "client": ("Client", ("Client", "Consumer", "PullConsumer", "Transaction")),
    "async-client": ("AsyncClient", ("AsyncClient", "AsyncConsumer", "AsyncPullConsumer", "AsyncTransaction")),
    "worker": ("Workers", ("Worker", "Middleware", "Reject", "RetryLater")),
    "outbox": ("Outbox", ("Outbox", "Box", "AsyncOutbox", "AsyncBox")),
    "message": ("Messages", ("Message", "Delivery", "SendReceipt", "DeadLetter", "TraceContext")),
    "config": (
        "Settings of a client",
        ("Timeouts", "Retry", "ConsumeOptions", "PullConsumeOptions", "BroadcastConsumeOptions", "FlowControl"),
    ),
    "errors": ("Errors", ("errors",)),
    "testing": ("A broker for tests", ("testing",)),
    "values": ("Other values", ()),
}
#: The methods of a namespace, below those of its client.
SECTION = """
## client.{name}

::: {kind}
    options:
      show_root_heading: false
      show_root_toc_entry: false
      heading_level: 3
"""


def linked(page: Path) -> set[Path]:
    """The files that a page links to. A link to a folder leads to its README.md."""
    targets = {(page.parent / link).resolve() for link in LINK.findall(page.read_text())}
    return {target / "README.md" if target.is_dir() else target for target in targets}


def reference() -> dict[str, str]:
    """The text of each page of the reference, by its file name."""
    placed = {name for _, names in REFERENCE.values() for name in names}
    others = [name for name in popmq.__all__ if name not in placed and name[0].isupper() and name != "PopMQError"]
    pages = {
        file: "\n\n".join([f"# {title}", *(f"::: popmq.{name}" for name in names or sorted(others))]) + "\n"
        for file, (title, names) in REFERENCE.items()
    }
    for file, client in (("client", popmq.Client), ("async-client", popmq.AsyncClient)):
        pages[file] += "".join(SECTION.format(name=name, kind=kind) for name, kind in namespaces(client))
    return pages


def namespaces(client: type[popmq.Client] | type[popmq.AsyncClient]) -> Iterator[tuple[str, str]]:
    """(name, path of the class) of each namespace of a client. A client that calls nobody makes them."""
    made = client("127.0.0.1:1")
    for name, member in (each for kind in client.__mro__ for each in vars(kind).items()):
        if isinstance(member, cached_property):
            kind = type(getattr(made, name))
            yield name, f"{kind.__module__}.{kind.__qualname__}"


def main() -> None:
    pages = {*ROOT.glob("[A-Z]*.md"), *(ROOT / "docs").rglob("*.md")}
    pages |= {target for page in pages for target in linked(page)}
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in sorted(pages):
        copy = PAGES / page.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(page, copy)
    api = PAGES / "docs" / "api"
    api.mkdir()
    for file, text in reference().items():
        (api / f"{file}.md").write_text(text)


if __name__ == "__main__":
    main()
