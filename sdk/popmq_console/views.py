"""Templates, and the text form of values on a page: the same words and units as on the command line.

Bodies come from untrusted senders. They are shown escaped, cut to a size that a browser can show, and never as HTML.
"""

import functools
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined

FOLDER = Path(__file__).parent
PAGE_ROWS = 50
HEX_BYTES = 4096
TEXT_CHARACTERS = 100_000
#: A longer body is not read as JSON: its values take up to 30 times its size in memory, and time of other visitors.
JSON_BYTES_MAX = 256 << 10
_INDENTED = json.JSONEncoder(indent=2, ensure_ascii=False)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rows(Generic[T]):
    """One page of a list: `number` of `pages`, from 1."""

    items: Sequence[T]
    number: int
    pages: int
    total: int


def paged(items: Sequence[T], page: str) -> Rows[T]:
    """The rows of page `page`, a text of the URL.

    A page beyond the list shows the nearest one, since rows come and go between two clicks.
    """
    pages = max(1, -(-len(items) // PAGE_ROWS))
    number = min(max(int(page) if page.isascii() and page.isdecimal() and len(page) < 9 else 1, 1), pages)
    return Rows(items[(number - 1) * PAGE_ROWS : number * PAGE_ROWS], number, pages, len(items))


def count(value: float) -> str:
    """1,234,567."""
    return f"{value:,.0f}"


def counted(value: int, noun: str) -> str:
    """1 lease, 2 leases."""
    return f"{value:,} {noun}" if value == 1 else f"{value:,} {noun}s"


def rate(value: float) -> str:
    """Messages a second: 12,345 or 0.25."""
    return f"{value:,.0f}" if value >= 10 or value == 0 else f"{value:.2g}"


def size(value: float) -> str:
    """Bytes: 1.5 GiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"


def seconds(value: float) -> str:
    """A duration: 250 ms, 12 s, 3 min 20 s, 5 h 2 min, 3 d 4 h."""
    if value == 0:
        return "0 s"
    if abs(value) < 1:
        return f"{value * 1000:.0f} ms"
    if abs(value) < 60:
        return f"{value:.1f}".removesuffix(".0") + " s"
    whole = round(value)
    for unit, of_s, less, of_less_s in (("d", 86400, "h", 3600), ("h", 3600, "min", 60), ("min", 60, "s", 1)):
        if whole >= of_s:
            rest = whole % of_s // of_less_s
            return f"{whole // of_s} {unit}" + (f" {rest} {less}" if rest else "")
    return f"{whole} s"


def duration(value: float) -> str:
    """A duration as it is typed, to the millisecond: 1h30m. A form that is sent unchanged must change nothing."""
    left, parts = round(value * 1000), []
    for unit, of_ms in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)):
        whole, left = divmod(left, of_ms)
        if whole:
            parts.append(f"{whole}{unit}")
    return "".join(parts) or "0s"


def mebibytes(value: int) -> str:
    """Bytes in MiB, exactly, since it is the value of a field: 1.5."""
    return f"{value / (1 << 20):.20f}".rstrip("0").rstrip(".")


def headline(reason: str) -> str:
    """The most telling line of a reason: of a Python traceback the last one, else the first."""
    lines = [line for line in reason.splitlines() if line.strip()] or [""]
    return (lines[-1] if lines[0].startswith("Traceback") else lines[0])[:200]


def moment(ms: int) -> str:
    """A time in UTC; "" for 0. One that has no date is a number: senders name some times, and may name any number."""
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S.}{ms % 1000:03}" if ms else ""
    except (ValueError, OverflowError, OSError):
        return f"{ms} ms"


def is_text(body: bytes) -> bool:
    """Whether a body is UTF-8."""
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def as_text(body: bytes) -> str:
    """A body as text; bytes that are not UTF-8 show as �."""
    return body[: 4 * TEXT_CHARACTERS].decode(errors="replace")[:TEXT_CHARACTERS]


def as_json(body: bytes) -> str:
    """A body as indented JSON; "" when it is not JSON, or longer than JSON_BYTES_MAX.

    Names keep their order and repeated ones are lost: it is for reading, the text form shows every byte. It is indented
    only as far as it is shown: the indentation of nested lists is a thousand times as long as they are.
    """
    if len(body) > JSON_BYTES_MAX:
        return ""
    shown = io.StringIO()
    try:
        for part in _INDENTED.iterencode(json.loads(body)):
            shown.write(part)
            if shown.tell() >= TEXT_CHARACTERS:
                break
        text = shown.getvalue()[:TEXT_CHARACTERS]
        text.encode()  # JSON can name half of a surrogate pair, which no page can show
        return text
    except (ValueError, RecursionError):
        return ""


def as_hex(body: bytes) -> str:
    """The first bytes of a body, 16 in a line: offset, hex, characters."""
    lines = []
    for start in range(0, min(len(body), HEX_BYTES), 16):
        row = body[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{start:08x}  {row.hex(' '):47}  {shown}")
    return "\n".join(lines)


def address(path: str, **values: object) -> str:
    """A path with a query; empty values are left out.

    Names of topics go into the query and not into the path: they may begin with %DLQ%, which proxies decode.
    """
    given = {name: value for name, value in values.items() if value not in ("", None)}
    return f"{path}?{urlencode(given)}" if given else path


def _or_unknown(text: Callable[[Any], str]) -> Callable[[Any], str]:
    """The same; – for a number that the broker's engine does not know."""
    return functools.wraps(text)(lambda value: "–" if value is None else text(value))


def _combined(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    return {**one, **other}


def environment(root: str = "") -> Environment:
    """Jinja2 with our filters. `root`: what the addresses of the pages begin with.

    It escapes everything, and a name that a page does not have is an error instead of an empty place.
    """
    made = Environment(
        loader=FileSystemLoader(FOLDER / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = (counted, rate, duration, mebibytes, headline, as_text, as_json, as_hex)
    made.filters.update({function.__name__: function for function in filters})
    made.filters.update({function.__name__: _or_unknown(function) for function in (count, size, seconds, moment)})
    made.filters["bytes"] = size
    made.filters["combined"] = _combined
    made.globals["root"] = root
    made.globals["address"] = lambda path, **values: root + address(path, **values)
    made.globals |= {"TEXT_CHARACTERS": TEXT_CHARACTERS, "JSON_BYTES_MAX": JSON_BYTES_MAX}
    return made
