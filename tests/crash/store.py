"""`popmq check` on a store whose broker is gone."""

from __future__ import annotations

from pathlib import Path

from popmq_server.fsck.check import check_folder


def broken_invariants(data: Path) -> list[str]:
    """Every broken invariant, as a sentence; empty for a sound store."""
    return check_folder(data)
