"""How many bytes of messages one group of commands answers, whatever asks for them.

    Pop, with or without a token, Pull, Peek, LookUp, Browse  ──▶  below the bound: it runs, and its answer counts
                                                              ──▶  else NEXT_GROUP: the writer runs it in the next group

One answer may have 16 MiB and a thousand commands may run in one group, so without a bound of all together a group
could build gigabytes. A command that is put off has done nothing: it leased nothing, used no quota and took no wake, so
it needs no rule of its own, sealed sets and replays included. It comes before all others that wait in its lane.
"""

from typing import Any, Final

from popmq_server.commands import Look, LookedUp, LookUp, Peek, Peeked, Pop, Popped, Pull, Pulled
from popmq_server.inspect.browse import Page

#: Bytes of messages that one group of commands answers; the last answer may go beyond.
ANSWER_BYTES_MAX = 16 << 20
#: In place of an answer: nothing was done, the command is to run in the next group.
NEXT_GROUP: Final = object()

_ASKS = (Pop, Pull, Peek, LookUp, Look)
_ANSWERS = (Popped, Pulled, Peeked, LookedUp, Page)


def must_wait(command: Any, answered: int) -> bool:
    """Whether a command asks for messages where its group has answered enough."""
    return answered >= ANSWER_BYTES_MAX and isinstance(command, _ASKS)


def bytes_of(answer: Any) -> int:
    """Bytes of messages in an answer."""
    return sum(len(row[0]) for row in answer.rows) if isinstance(answer, _ANSWERS) else 0
