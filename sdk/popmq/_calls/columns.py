"""Messages as columns, read from an answer."""

from collections.abc import Collection

from popmq._calls.deliveries import encoding_name, read_dead_letter
from popmq.message import Columns
from popmq_proto.v1 import popmq_pb2 as pb


def asked(columns: Collection[str] | None) -> list[str]:
    """The names for a request: none for the usual ones. Offsets always come: rows are counted by them."""
    return [] if columns is None else sorted({*columns, "offset"})


def read_columns(rows: pb.Columns) -> Columns:
    """Lists of one length, but for those that were not asked for."""
    # Slices copy a repeated field into a list at C speed; messages mostly have no properties, and {} costs nothing.
    none: dict[str, str] = {}
    return Columns(
        rows.message_id[:],
        rows.body[:],
        rows.tag[:],
        rows.key[:],
        rows.queue[:],
        rows.offset[:],
        rows.born_ms[:],
        rows.stored_ms[:],
        rows.attempt[:],
        [dict(row.entries) if row.entries else none for row in rows.properties],
        [read_dead_letter(row) if row.topic else None for row in rows.dead_letter],
        [tuple(row.keys) for row in rows.keys],
        rows.message_group[:],
        rows.priority[:],
        [encoding_name(number) for number in rows.encoding],
    )
