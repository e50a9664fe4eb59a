"""Commands on filters: see subscription.py."""

from typing import NamedTuple

from popmq_server.contract.commands.lanes import LANE_ACK, command

#: The filter of a group that reads everything.
EVERY_MESSAGE = ("tag", "*")


@command(LANE_ACK)
class SetFilter(NamedTuple):
    """→ Subscription. Replaces the filter of a group in a topic; `filter` is (kind, text), ("", "") = every message."""

    topic: str
    group: str
    filter: tuple[str, str]
