"""What the lists of delayed and half messages show of a message: its keys, its tag and the beginning of its body."""

import struct

from popmq_server.contract.commands.numbers import MessagePreview
from popmq_server.values import fields
from popmq_server.values.outgoing import packed_data


def preview_of(packed: memoryview) -> MessagePreview | None:
    """The preview of a packed message, whose body is not copied; None if its bytes are damaged."""
    try:
        return MessagePreview(*fields.preview(packed_data(packed)))
    except (IndexError, ValueError, struct.error):
        return None
