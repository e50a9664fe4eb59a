"""Tags: a message has at most one; a filter has a list of them.

    ""  "*"        every message, with a tag or without
    "a || b"       messages whose tag is a or b; blanks around a tag and empty list entries are ignored
    "* || a"       in a list `*` is a tag like any other

The consume queue holds an eight-byte tag hash for each message, so a scan for tags reads only messages whose hash
matches; their texts tell apart tags with the same hash.
"""

from popmq_server.errors import Refused
from popmq_server.values.filters.errors import refusal

ALL = "*"
SEPARATOR = "||"
#: Maximum number of tags in one list.
TAGS_MAX = 256


def fault(tag: str) -> str:
    """Why no message can have this tag, or ""."""
    if "|" in tag or any(character.isspace() for character in tag):
        return "has a space or '|' in it"
    if any(character < " " or "\x7f" <= character <= "\x9f" for character in tag):
        return "has a control character in it"
    return ""


def parse(text: str) -> tuple[str, ...] | None:
    """The tags of a list, sorted, without duplicates; None = every message. Raises Refused FILTER_INVALID."""
    if text.strip() in ("", ALL):
        return None
    tags: set[str] = set()
    offset = 0
    for part in text.split(SEPARATOR):
        tag = part.strip()
        if tag and (why := fault(tag)):
            raise _refused(text, offset + part.index(tag), f"the tag {tag!r} {why}, so no message can have it")
        tags.add(tag)
        offset += len(part) + len(SEPARATOR)
    tags.discard("")
    if not tags:
        raise _refused(text, 0, "this list has no tag in it")
    if len(tags) > TAGS_MAX:
        raise _refused(text, 0, f"this list has {len(tags)} tags, at most {TAGS_MAX} are allowed")
    return tuple(sorted(tags))


def _refused(text: str, offset: int, why: str) -> Refused:
    return refusal("tag", text, offset, why, 'write tags as "a || b", or "*" for every message')


def written(tags: tuple[str, ...]) -> str:
    """The normal form of a list; a list with only the tag `*` is not "every message"."""
    return f" {SEPARATOR} ".join(tags) if tags != (ALL,) else f"{ALL} {SEPARATOR} {ALL}"
