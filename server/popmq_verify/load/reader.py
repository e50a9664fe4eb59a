"""One owner in the campaigns: it reads epochs under sealed tokens, as a Spark query does, and reads some of them again.

    python -m popmq_verify.load.reader ENDPOINT FOLDER NAME SEED

Every token is popped until it is answered, some again after a new attach, some after the owner's lease has expired. The
reader ends with the first empty epoch after the file FOLDER/last appeared. `sealed.py` judges what was recorded:

    attach   {}                                        → generation, acked_epoch
    token    generation, epoch, part, chunk            → rows [[id, queue, offset], …], end, torn
    ack_upto generation, epoch                         → acked_epoch
    renew    {}                                        → {}
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.load.client import DEADLINE_S, PAUSE_S, TOPICS, certainty
from popmq_verify.load.history import Recorder
from popmq_verify.load.scratch import RETRYABLE
from popmq_verify.load.stubs import Stubs

TOPIC = TOPICS[0]
GROUP = "warehouse"
OWNER = "query-1"
LEASE_MS = 1500
PARTS = 2
CHUNKS_MAX = 3


class Reader:
    """One owner of the group GROUP. It has one open epoch at a time, reads it in PARTS parts of up to CHUNKS_MAX
    tokens, and acks it as a whole.
    """

    def __init__(self, stubs: Stubs, recorder: Recorder, chance: random.Random, lease_ms: int = LEASE_MS) -> None:
        """`chance` decides when it attaches again, renews, or lets its lease expire."""
        self.stubs, self.recorder, self.random, self.lease_ms = stubs, recorder, chance, lease_ms
        self.generation = self.epoch = 0

    def insist(self, kind: str, method: Any, request: Any, told: Callable[[Any], dict[str, Any]], **asked: Any) -> Any:
        """Every call of an owner may be repeated, and is, until it is answered. A refusal is raised."""
        while True:
            self.recorder.called(kind, **asked)
            try:
                answer = method(request, timeout=DEADLINE_S)
            except grpc.RpcError as error:
                self.recorder.returned(certainty(error), details=str(error))
                if error.code() not in RETRYABLE:
                    raise
                time.sleep(PAUSE_S)
                continue
            self.recorder.returned("ok", **told(answer))
            return answer

    def attach(self) -> None:
        """Makes this reader the owner; it continues after the last acked epoch, under a new generation."""
        request = pb.AttachOwnerRequest(
            group=GROUP, owner=OWNER, lease_ms=self.lease_ms, topic=TOPIC, create_group=True
        )
        answer = self.insist("attach", self.stubs.broker.AttachOwner, request, _attached)
        self.generation, self.epoch = answer.generation, answer.acked_epoch + 1

    def read(self) -> int:
        """All tokens of the open epoch; how many messages they hold."""
        return sum(self._read_part(part) for part in range(PARTS))

    def _read_part(self, part: int) -> int:
        """Pops the tokens of a part until one is at the end; returns the number of messages."""
        count = 0
        for chunk in range(CHUNKS_MAX):
            answer = self._pop(part, chunk)
            count += len(answer.deliveries)
            if answer.sealed.end:
                break
        return count

    def _pop(self, part: int, chunk: int) -> Any:
        """Pops under one token. The first Pop seals the set of messages, every later one must return the same."""
        token = pb.Token(owner=OWNER, generation=self.generation, epoch=self.epoch, part=part, chunk=chunk)
        request = pb.PopRequest(topic=TOPIC, group=GROUP, token=token, max_messages=60, client_id="reader")
        asked = {"generation": self.generation, "epoch": self.epoch, "part": part, "chunk": chunk}
        return self.insist("token", self.stubs.broker.Pop, request, _sealed, **asked)

    def ack(self) -> None:
        """Acks the open epoch and opens the next one."""
        request = pb.AckUpToRequest(group=GROUP, owner=OWNER, generation=self.generation, epoch=self.epoch)
        asked = {"generation": self.generation, "epoch": self.epoch}
        self.insist("ack_upto", self.stubs.broker.AckUpTo, request, _acked, **asked)
        self.epoch += 1

    def renew(self) -> None:
        """Extends the owner's lease."""
        request = pb.RenewOwnerRequest(group=GROUP, owner=OWNER, generation=self.generation, lease_ms=self.lease_ms)
        self.insist("renew", self.stubs.broker.RenewOwner, request, lambda _: {})

    def step(self) -> int:
        """One epoch, read once or more; how many messages it had."""
        count = self.read()
        fate = self.random.random()
        if fate < 0.25:  # the query starts again
            self.attach()
            self.read()
        elif fate < 0.35:
            self.renew()
        elif fate < 0.45:  # its lease expires, and it continues as if nothing had happened
            time.sleep(self.lease_ms / 1000 + 0.2)
            self.read()
        self.ack()
        return count

    def finish(self) -> None:
        """Reads on until an epoch that began only now is empty; the open one may have been sealed empty long ago."""
        self.read()
        self.ack()
        while self.read():
            self.ack()
        self.ack()


def _attached(answer: pb.AttachOwnerResponse) -> dict[str, Any]:
    """What a history keeps of an answer to AttachOwner."""
    return {"generation": answer.generation, "acked_epoch": answer.acked_epoch}


def _acked(answer: Any) -> dict[str, Any]:
    """What a history keeps of an answer to AckUpTo."""
    return {"acked_epoch": answer.acked_epoch}


def _sealed(answer: pb.PopResponse) -> dict[str, Any]:
    """What a history keeps of an answer to a Pop with a token. `torn`: messages that the broker could not repeat."""
    rows = [[one.message.message_id, one.queue, one.offset] for one in answer.deliveries]
    torn = answer.sealed.torn_stolen + answer.sealed.torn_lost
    return {"rows": rows, "end": answer.sealed.end, "torn": torn}


def main(endpoint: str, folder: Path, name: str, seed: int) -> None:
    """Runs the reader as a process of its own, until the load has ended and all of it is read."""
    reader = Reader(Stubs(endpoint), Recorder(folder, name), random.Random(f"{seed}/{name}"))
    reader.attach()
    while not (folder / "last").exists():
        reader.step()
    reader.finish()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
