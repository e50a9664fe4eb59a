"""Texts of other programs on a terminal: ids, keys, reasons and bodies may have characters that a terminal obeys.

An escape is shown in place of each control, line separator, and mark that changes the direction of a text.
"""

import re

_HIDDEN = "\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_IN_LINE = re.compile(f"[{_HIDDEN}]")
#: Line ends and tabs of a text stay.
_IN_LINES = re.compile(rf"(?![\n\t]|\r\n)[{_HIDDEN}]")


def line(text: object) -> str:
    """A text as a part of one line: a newline is an escape, too."""
    return _IN_LINE.sub(_escape, str(text))


def lines(text: str) -> str:
    """A text of several lines."""
    return _IN_LINES.sub(_escape, text)


def in_json(text: str) -> str:
    """A JSON text: the same text for who reads it as JSON."""
    return _IN_LINE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()
