"""A short history of a real broker, in which everything happens that a lie can be about."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify import campaign
from popmq_verify.judging.facts import Facts
from popmq_verify.load.client import FIFO_TOPIC, GROUPS, Client, body_of
from popmq_verify.load.history import Recorder, read
from popmq_verify.load.stubs import Stubs
from popmq_verify.process.broker_process import BrokerProcess
from popmq_verify.rest import come_to_rest
from tests.jepsen import form

GROUP = GROUPS[1]
LEASE_MS = 1000


class Teller(Client):
    """A load client that does what it is told, and never gives a call a time too short."""

    def _patience(self) -> float:
        return 30.0

    def sends(self, topic: str, *ids: str, message_group: str = "", tries: int = 1) -> None:
        """A numbered request."""
        self.number += 1
        messages = [pb.Message(message_id=one, body=body_of(one), message_group=message_group) for one in ids]
        request = pb.SendRequest(topic=topic, messages=messages, producer_id=self.name, request_number=self.number)
        for _ in range(tries):
            self._send(request)

    def pops(self, topic: str, count: int) -> list[str]:
        """The handles of so many messages, of which a lease is short."""
        self.number += 1
        request = pb.PopRequest(
            topic=topic, group=GROUP, max_messages=count, invisible_ms=LEASE_MS, client_id=self.name
        )
        answer: Any = self._pop(request)
        return [one.handle for one in answer.deliveries]


def told(folder: Path) -> list[form.Line]:
    """The lines of the history."""
    histories = folder / "histories"
    histories.mkdir()
    with BrokerProcess(folder / "data") as broker, Stubs(broker.endpoint) as stubs:
        campaign.prepare(broker)
        teller = Teller(broker.endpoint, histories, "teller", 1)
        _tell(teller)
        teller.recorder.close()
        teller.stubs.close()
        survey = come_to_rest(stubs, Recorder(histories, "rest"))
    return list(form.lines_of(Facts(read(histories)).history, survey))


def _tell(teller: Teller) -> None:
    """Sends, and every end that a delivery can have."""
    teller.sends("orders", *(f"o{number}" for number in range(20)), tries=2)
    teller.sends("clicks", "c0", "c1")
    for number in range(8):
        teller.sends(FIFO_TOPIC, f"l{number}", message_group="alice")
    teller.change(GROUP, teller.pops("orders", 2), "release", 300)
    teller.change(GROUP, teller.pops("orders", 2), "release", 100, uncounted=True)
    extended = teller.pops("orders", 2)
    teller.change(GROUP, extended, "extend", 2000)
    teller.ack(GROUP, extended)
    teller.change(GROUP, teller.pops("orders", 1), "reject")
    for _ in range(3):
        teller.ack(GROUP, teller.pops("orders", 1))
    teller.settle(GROUP, teller.pops("orders", 2))
    for _ in range(5):
        teller.ack(GROUP, teller.pops(FIFO_TOPIC, 1))
    lapsing = teller.pops("orders", 1)
    begun = time.monotonic()
    while time.monotonic() < begun + LEASE_MS / 1000 + 0.5:
        time.sleep(0.05)
    teller.ack(GROUP, lapsing)
