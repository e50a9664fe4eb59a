"""What the contract says in its comments, read from the .proto: `enum Code` with the gRPC status of each."""

from __future__ import annotations

import re

from tests.crash.broker_process import ROOT

CONTRACT = ROOT / "proto" / "popmq" / "v1" / "popmq.proto"
CODE_LINE = re.compile(r"^  (\w+) = \d+; +// \[(\w+)\]", re.MULTILINE)


def documented() -> dict[str, str]:
    """Code → gRPC status, from the comments of `enum Code`."""
    text = CONTRACT.read_text()
    return dict(CODE_LINE.findall(text[text.index("enum Code {") : text.index("message ErrorInfo")]))
