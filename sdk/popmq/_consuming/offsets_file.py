"""The offsets of a broadcast reader, in a file of its own: JSON, replaced as a whole.

    {"topic": "prices", "topic_created_ms": 1785000000000, "offsets": {"0": 17, "1": 20}}

`topic_created_ms` says which topic of this name the offsets are of, since one may be deleted and created again.
Written to FILE.tmp, brought to the disk, and renamed; what was there before is FILE.bak, and is read when FILE is
missing, empty or broken. A power cut at any moment leaves one of the two whole.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from popmq.errors import PopMQError

log = logging.getLogger("popmq.consumer")


class Kept(NamedTuple):
    """Queue → next offset, and when the topic was created that they are of; 0 = not known."""

    offsets: Mapping[int, int]
    topic_created_ms: int


def read(path: Path, topic: str) -> Kept:
    """No offsets when neither file is there. Raises PopMQError when what is there cannot be read."""
    broken = []
    for file in (path, backup_of(path)):
        try:
            text = file.read_text()
        except FileNotFoundError:
            continue
        try:
            kept = _parse(text, topic)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            log.warning("the offsets in %s cannot be read: %s", file, error)
            broken.append(f"{file}: {error}")
        else:
            return kept
    if broken:
        raise PopMQError(
            f"no offsets of topic {topic!r} can be read ({'; '.join(broken)})",
            action="delete these files to begin where `start` says, or name another file",
        )
    return Kept({}, 0)


def _parse(text: str, topic: str) -> Kept:
    found = json.loads(text)
    if found["topic"] != topic:
        raise ValueError(f"they are of topic {found['topic']!r}, not of {topic!r}")
    offsets = {int(queue): int(offset) for queue, offset in found["offsets"].items()}
    if any(number < 0 for pair in offsets.items() for number in pair):
        raise ValueError("a number is negative")
    return Kept(offsets, int(found.get("topic_created_ms", 0)))


def write(path: Path, topic: str, kept: Kept) -> None:
    """Returns when they are on the disk. Raises OSError."""
    offsets = {str(queue): kept.offsets[queue] for queue in sorted(kept.offsets)}
    text = json.dumps({"topic": topic, "topic_created_ms": kept.topic_created_ms, "offsets": offsets})
    new = path.with_name(f"{path.name}.tmp")
    with new.open("w") as file:
        file.write(f"{text}\n")
        file.flush()
        os.fsync(file.fileno())
    if path.exists():
        os.replace(path, backup_of(path))
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def backup_of(path: Path) -> Path:
    """Where the file before this one is."""
    return path.with_name(f"{path.name}.bak")
