"""Files that operators replace while the broker runs: its certificate and its access keys.

Callers compare versions when they need the file; there is no thread. `version` costs one system call.
"""

import pathlib

#: Changes when a file is replaced or written to; None: there is no such file.
Version = tuple[int, int, int] | None


def version(path: pathlib.Path) -> Version:
    """The current version of a file."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns
