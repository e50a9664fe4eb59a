"""Commands on filters: see subscription.py."""

from popmq_server.contract.capabilities import FILTERS
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_ACK, Command
from popmq_server.contract.rights import Needs, receives
from popmq_server.values.records import Subscription

#: The filter of a group that reads everything.
EVERY_MESSAGE = ("tag", "*")


class SetFilter(Command[Subscription], Listed["SetFilter"], lane=LANE_ACK, capability=FILTERS):
    """Replaces the filter of a group in a topic; `filter` is (kind, text), ("", "") = every message."""

    topic: str
    group: str
    filter: tuple[str, str]

    def needs(self) -> Needs:
        return receives(self.topic, self.group, or_admin=True)
