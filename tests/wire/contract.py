"""Reads codes, their status, and the codes of each call from the texts of the contract and docs/protocol.md."""

import re
from collections.abc import Iterator

from harness.broker_process import ROOT

CONTRACT = ROOT / "proto" / "popmq" / "v1" / "popmq.proto"
PAGE = ROOT / "docs" / "protocol.md"
RPC = re.compile(r"((?: *//.*\n)+) *rpc (\w+)\(")
WORD = re.compile(r"\b[A-Z]+(?:_[A-Z]+)*\b")
CODE_LINE = re.compile(r"^  (\w+) = \d+; +// \[(\w+)\]", re.MULTILINE)


def documented() -> dict[str, str]:
    """Code → gRPC status, from the comments of `enum Code`."""
    text = CONTRACT.read_text()
    return dict(CODE_LINE.findall(text[text.index("enum Code {") : text.index("message ErrorInfo")]))


def errors_of_contract() -> dict[str, set[str]]:
    """RPC → the codes that the comment above it names after "Errors:" or "Per entry:"."""
    found: dict[str, set[str]] = {}
    for name in re.findall(r"rpc (\w+)\(", CONTRACT.read_text()):
        found[name] = set()
    for comment, name in RPC.findall(CONTRACT.read_text()):
        text = " ".join(line.strip(" /") for line in comment.splitlines())
        told = re.split(r"Errors:|Per entry:", text)[1:]
        found[name] = {word for word in WORD.findall(" ".join(told)) if word in documented()}
    return found


def table(heading: str) -> Iterator[list[str]]:
    """The cells of each row of the table under a heading of the page."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in section.splitlines():
        if line.startswith("| "):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def errors_of_page() -> dict[str, set[str]]:
    """RPC → the codes that the page's table of calls gives it, with those that any call may end with."""
    found: dict[str, set[str]] = {}
    for calls, _, ends in table("Every call, and how it ends"):
        for name in re.findall(r"`([A-Z]\w+)`", calls):
            codes = {word for word in WORD.findall(ends) if word in documented()}
            found[name] = found.get(name, set()) | codes | {"INVALID_FIELD", "UNAVAILABLE", "INTERNAL"}
    return found
