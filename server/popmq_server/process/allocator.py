"""Settings of glibc's allocator: large answers go back to the system when they are freed.

For a program that frees blocks of some MiB glibc raises the size from which blocks are mapped alone, up to 32 MiB. Then
answers of 16 MiB lie in the heap beside small objects, and the holes that they leave stay: clients that were promised
128 MiB cost the process 242.
"""

import ctypes
import sys

#: From <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
#: Blocks from this size on are mapped alone. The answers of most calls are smaller: mapping costs a page fault for each
#: 4 KiB.
MAPPED_BYTES = 1 << 20
#: Free bytes at the end of the heap that are kept.
KEPT_BYTES = 16 << 20


def return_large_blocks() -> None:
    """Sets the sizes for this process. Does nothing where the C library is not glibc."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, MAPPED_BYTES)
        mallopt(_TRIM_THRESHOLD, KEPT_BYTES)
