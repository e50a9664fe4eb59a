"""Files with secrets, which operators replace while the process runs."""

import os
import pathlib
import stat

#: Changes when a file is replaced or written to, or gets another owner or mode; None: there is no such file.
FileVersion = tuple[int, ...] | None


def file_version(path: pathlib.Path) -> FileVersion:
    """The current version of a file that operators replace while the process runs: access keys, a certificate.

    Callers compare versions when they need the file; there is no thread. It costs one system call.
    """
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_mode, stat.st_uid, stat.st_gid


def read_private(path: pathlib.Path, flag: str) -> str:
    """The text of a file that others must not read. Raises ValueError: one sentence, with the `flag` that names it."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            mode = stat.S_IMODE(found.st_mode)
            # A file of root that the process's group may read is how Kubernetes mounts secrets for a user.
            if mode & (0o077 if found.st_uid == os.geteuid() else 0o037):
                raise ValueError(f"others may read {path} (mode {mode:o}): chmod 600 {path}")
            return file.read().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file that is there with {flag}") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
