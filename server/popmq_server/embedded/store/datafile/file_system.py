"""The file system of a data folder: which ones a store cannot be kept on, and of which ones a start warns.

LMDB reads the data file through a shared map and writes it by calls. So a write must be seen in the map at once, a lock
must keep every other process away, and a sync must reach the disk. File systems of a network promise none of this, and
LMDB's documentation says not to use it there. What is refused is listed by name, since nothing can try it out: a map
goes stale, or a lock is lost, only on a bad day.

The kernel tells the mount of an open folder by its number, and /proc/self/mountinfo has a line for each:

    42 27 0:39 / /srv/popmq rw,relatime shared:1 - nfs4 server:/export rw,vers=4.2
    number                                         name source         options of the file system

Where there is no /proc, as on macOS, nothing is refused.

btrfs writes each changed block to a new place. Without room for that it ends a process that writes to a map (SIGBUS).
LMDB maps its lock file for writing, so there its blocks are written in place. Those of the data file keep the checksums
of btrfs: they are written by calls, which can fail.

See docs/decisions/0069-what-a-start-asks-the-disk.md.
"""

import contextlib
import fcntl
import os
import pathlib
import struct
from typing import NamedTuple

from popmq_server.errors import StartError

_MOUNTS = pathlib.Path("/proc/self/mountinfo")
#: On other machines, or shared with them: locks, maps or syncs are not what a store needs.
_REFUSED = frozenset(
    (
        *("9p", "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4"),
        *("ocfs2", "orangefs", "smb3", "smbfs"),
        # Of programs. FUSE has file systems of disks, too, which are not listed.
        *("fuse.blobfuse", "fuse.blobfuse2", "fuse.ceph-fuse", "fuse.gcsfuse", "fuse.glusterfs", "fuse.goofys"),
        *("fuse.juicefs", "fuse.mount-s3", "fuse.mountpoint-s3", "fuse.rclone", "fuse.s3fs", "fuse.seaweedfs"),
        "fuse.sshfs",
    )
)
#: What is gone when the machine or the container ends.
_PASSING = {
    "tmpfs": "it is memory: all messages are lost when the machine stops",
    "ramfs": "it is memory: all messages are lost when the machine stops",
    "overlay": "it usually is the layer of a container, and is removed with it: mount a volume for the data folder",
}
#: Options of a mount that take the syncs away.
_UNSYNCED = frozenset({"nobarrier", "barrier=0", "volatile", "fsync=volatile"})
#: Of linux/fs.h: the flags of a file, on systems whose long has 64 bits, and the one for blocks that stay in place.
_GET_FLAGS, _SET_FLAGS, _IN_PLACE = 0x80086601, 0x40086602, 0x00800000


class Mount(NamedTuple):
    """`name`: the type of the file system, as in `mount -t`. `options`: of the file system itself."""

    name: str
    options: frozenset[str]


def mount_of(folder: pathlib.Path, mounts: pathlib.Path = _MOUNTS) -> Mount | None:
    """The file system of a folder; None if the system does not tell."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            told = pathlib.Path(f"/proc/self/fdinfo/{handle}").read_text()
        finally:
            os.close(handle)
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return None
    number = told.partition("mnt_id:")[2].split()[:1]
    for line in lines:
        own, _, system = line.partition(" - ")
        fields = system.split(" ")
        if own.split(" ")[:1] == number and len(fields) >= 3:
            return Mount(fields[0], frozenset(fields[2].split(",")))
    return None


def refuse_remote(folder: pathlib.Path, mount: Mount | None) -> None:
    """Raises StartError for a file system on which a store cannot be kept."""
    if mount is not None and mount.name in _REFUSED:
        raise StartError(
            f"{folder} is on {mount.name}, a file system of a network, on which a map may be stale and a lock may not "
            "hold: name a folder on a disk of this machine, or on a block volume, with --data"
        )


def warnings(mount: Mount | None) -> list[str]:
    """What an operator should know of the file system of a broker that syncs."""
    if mount is None:
        return []
    told = [f"the data folder is on {mount.name}: {_PASSING[mount.name]}"] if mount.name in _PASSING else []
    if mount.name.startswith("fuse"):
        told.append(
            f"the data folder is on {mount.name}, a file system of a program: whether an OK is on disk depends on it; "
            "test it with `popmq verify --scratch`"
        )
    told += [
        f"the file system of the data folder is mounted with {option}: an OK may not survive a power cut"
        for option in sorted(mount.options & _UNSYNCED)
    ]
    return told


def make_in_place(file: pathlib.Path, mount: Mount | None) -> None:
    """On btrfs makes the file, empty and with its blocks in place, if it is missing: a file with content cannot be
    changed so. Does nothing elsewhere.
    """
    if mount is None or mount.name != "btrfs":
        return
    with contextlib.suppress(OSError):
        handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            (flags,) = struct.unpack("l", fcntl.ioctl(handle, _GET_FLAGS, bytes(8)))
            fcntl.ioctl(handle, _SET_FLAGS, struct.pack("l", flags | _IN_PLACE))
        finally:
            os.close(handle)
