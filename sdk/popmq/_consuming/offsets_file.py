"""The offsets of a broadcast reader, in a file of its own: JSON, replaced as a whole.

    {"topic": "prices", "offsets": {"0": 17, "1": 20}}

Written to FILE.tmp, brought to the disk, and renamed; what was there before is FILE.bak, and is read when FILE is
missing, empty or broken (S2.46). A power cut at any moment leaves one of the two whole.
"""

import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from popmq.errors import PopMQError

log = logging.getLogger("popmq.consumer")


def read(path: Path, topic: str) -> dict[int, int]:
    """Queue → next offset; empty when neither file is there. Raises PopMQError when what is there cannot be read."""
    broken = []
    for file in (path, backup_of(path)):
        try:
            text = file.read_text()
        except FileNotFoundError:
            continue
        try:
            offsets = _parse(text, topic)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            log.warning("the offsets in %s cannot be read: %s", file, error)
            broken.append(f"{file}: {error}")
        else:
            return offsets
    if broken:
        raise PopMQError(
            f"no offsets of topic {topic!r} can be read ({'; '.join(broken)})",
            action="delete these files to begin where `start` says, or name another file",
        )
    return {}


def _parse(text: str, topic: str) -> dict[int, int]:
    found = json.loads(text)
    if found["topic"] != topic:
        raise ValueError(f"they are of topic {found['topic']!r}, not of {topic!r}")
    offsets = {int(queue): int(offset) for queue, offset in found["offsets"].items()}
    if any(number < 0 for pair in offsets.items() for number in pair):
        raise ValueError("a number is negative")
    return offsets


def write(path: Path, topic: str, offsets: Mapping[int, int]) -> None:
    """Returns when they are on the disk. Raises OSError."""
    text = json.dumps({"topic": topic, "offsets": {str(queue): offsets[queue] for queue in sorted(offsets)}})
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
