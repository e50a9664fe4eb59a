"""The Engine: the one interface between the protocols (protocols/) and the message store.

A protocol turns requests into commands (commands/) and answers into responses; it holds no rules. The embedded engine
(loop/broker.py) runs commands on the local store; tests/engine/stub.py is a second one.

    core.py       Commands       execute, ask                                     every part of protocols/
                  Core           the same, pop, sessions, size of the store       what every engine has
    parts.py      Polling        wait_available, pull                             parked calls
                  Inspection     peek, look_up, search, why                         single messages
                  Sessions       locks of queues                                  consumers that pull
                  Admin          redrive, consume mode, offsets, backup           operators
    producers.py  CheckStreams   producers that are asked about their half messages

A part of protocols/ takes a smaller protocol where one suffices; those of protocols/rocketmq share a base that takes
Engine.
Every method raises `Refused` for a request that the engine refuses. Handles, recall handles and transaction ids are
texts that the engine makes and reads.

See docs/decisions/0041-the-seam.md.
"""

from typing import Protocol

from popmq_server.contract.core import Core
from popmq_server.contract.parts import (
    Admin,
    Inspection,
    Polling,
    Sessions,
)
from popmq_server.contract.producers import CheckStreams


class Engine(Polling, Inspection, Sessions, CheckStreams, Admin, Core, Protocol):
    """An engine with all capabilities, or one that refuses those that it lacks (limited.py): what protocols/ serves."""
