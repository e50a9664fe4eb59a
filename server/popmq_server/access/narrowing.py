"""What commands tell the engine of the caller's access key, for what only the store can compare.

    Stage, CommitBatch, DropStages   the name of the key         a sink belongs to the key that used it first

Without access keys no command is changed, and the defaults of its fields allow everything.
"""

from typing import Any

from popmq_server.access.access_keys import Key, Need
from popmq_server.commands import CommitBatch, DropStages, Stage

_ADMIN = Need("admin")


def _of_sink(command: Any, key: Key) -> Any:
    return command._replace(access_key=key.name, any_sink=key.may(_ADMIN))


#: The commands that are changed before the engine gets them.
NARROWED = {Stage: _of_sink, CommitBatch: _of_sink, DropStages: _of_sink}
