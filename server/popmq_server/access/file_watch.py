"""Files that operators replace while the broker runs: its certificate and its access keys.

They are looked at when they are needed and not by a thread: `version` costs one call of the system.
"""

import pathlib

#: What is different after a file was replaced or written to; None: there is no such file.
Version = tuple[int, int, int] | None


def version(path: pathlib.Path) -> Version:
    """The version of a file as it is now."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
