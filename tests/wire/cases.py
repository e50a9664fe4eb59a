"""Bad requests as values: a good request with fields changed, and the code of its refusal."""

from typing import Any, NamedTuple

HOUR_12 = 43_200_000
INT64 = (-(2**63), 2**63 - 1)
#: Texts that are not valid names of topics or groups.
ODD_NAMES = [
    "",
    " ",
    "a b",
    "a\n",
    "a\0b",
    "naïve",
    "名",
    "a/b",
    "../../etc/passwd",
    "a+b",
    "a%b",
    "%RETRY%billing+orders",
    "%DLQ%",
    "%DLQ%a b",
    "%DLQ%%DLQ%a",
    "%dlq%a",
    "a:b",
    "\u202eabc",
    "🦀",
    "x" * 128,
    "x" * 1_000_000,
]


class Case(NamedTuple):
    """A good request with `changes`; values may be functions of the world."""

    method: str
    changes: dict[str, Any]
    code: str
    field: str

    def __str__(self) -> str:
        shown = [f"{name}={str(value)[:20]!r}" for name, value in self.changes.items() if not callable(value)]
        return f"{self.method} {' '.join(shown)} → {self.code}"


def bad(name: str, code: str, path: str, /, **changes: Any) -> Case:
    return Case(name, changes, code, path)


def out_of_range(name: str, field: str, *values: int, path: str = "") -> list[Case]:
    """INVALID_FIELD for each value; `path` where the contract's path is not the field's own name."""
    return [bad(name, "INVALID_FIELD", path or field.replace("__", "."), **{field: value}) for value in values]
