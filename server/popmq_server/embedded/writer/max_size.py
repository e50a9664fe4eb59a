"""The limit of the data file, changed while the broker runs.

See docs/decisions/0039-moving-the-limit.md.
"""

import logging

from popmq_server.embedded.store.folder import NoMapping
from popmq_server.embedded.store.lmdb import MapFull
from popmq_server.embedded.store.store import Store, reading
from popmq_server.errors import NoRoom, invalid

log = logging.getLogger("popmq.core")


def set_max_size(store: Store, size: int) -> None:
    """Sets the map size, in bytes; refuses one below the pages in use. Raises DiskFault; a failure changes nothing."""
    before, reached = store.map_bytes, store.pages_reached * store.page_bytes
    with reading(store) as kv:
        used = kv.used_pages() * store.page_bytes
    if size < used:
        raise invalid(
            f"the store has {used:,} bytes in use, more than {size:,}",
            field="map_bytes",
            action="name a larger size, or delete or purge something first",
        )
    try:
        store.set_max_size(size)
    except NoMapping as error:
        raise invalid(
            str(error), field="map_bytes", action="name a smaller size, or raise what the system allows"
        ) from None
    except MapFull:
        raise NoRoom(f"{size:,} bytes leave no page for the new limit itself") from None
    log.warning("the limit of the data file is %d bytes now, it was %d; the file has %d", size, before, reached)
