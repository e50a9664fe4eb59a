"""Results of messages: what a handler gives with its ack or is stored without one, and how it is asked for."""

from typing import NamedTuple

from popmq_server.contract.capabilities import RESULTS
from popmq_server.contract.commands.listed import Listed
from popmq_server.contract.operations import LANE_SEND, Command, Query
from popmq_server.contract.rights import Needs, looks, receives, sends
from popmq_server.values.message import results_topic


class GivenResult(NamedTuple):
    """The result of the delivery at `handle` in the handles of an Ack or Settle; at most one of each."""

    handle: int
    body: bytes
    content_type: str = ""


class MessageResult(NamedTuple):
    """The result of a message by its id."""

    message_id: str
    body: bytes
    content_type: str = ""


class ResultsFound(NamedTuple):
    """`rows`: (fields of popmq.v1.Result as stored, stored ms, message id). `full`: the limit of bytes was reached."""

    rows: list[tuple[bytes, int, str]]
    full: bool


class GetResults(Query[ResultsFound], Listed["GetResults"], entries="message_ids", capability=RESULTS):
    """The last results of messages for `group`, and dead letters as failed ones; each id once.

    `wait_ms`: waits so long while fewer than `results_min` are there. `bytes_max`: soft, one result is always allowed.
    """

    group: str
    message_ids: tuple[str, ...]
    wait_ms: int = 0
    results_min: int = 1
    bytes_max: int = 3 << 20

    def needs(self) -> Needs:
        """As to look at messages of the topic: consumers, which give results, need not be allowed to read them."""
        return looks(results_topic(self.group), "")


class StoreResults(Command[None], Listed["StoreResults"], lane=LANE_SEND, entries="results", capability=RESULTS):
    """Keeps results for `group` without an ack. `bytes`: of all of them."""

    group: str
    results: tuple[MessageResult, ...]
    bytes: int = 0

    def needs(self) -> Needs:
        return sends(results_topic(self.group))

    def takes_room(self) -> bool:
        return True


class ForgetResults(Command[None], Listed["ForgetResults"], lane=LANE_SEND, entries="message_ids", capability=RESULTS):
    """Forgets the results of messages for `group`, if there are any; each id once."""

    group: str
    message_ids: tuple[str, ...]

    def needs(self) -> Needs:
        return receives(results_topic(self.group), "")

    def takes_room(self) -> bool:
        return True
