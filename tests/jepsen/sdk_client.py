"""One load client that uses the SDK as a program does, with its retries and its own transport.

    python -m tests.jepsen.sdk_client ENDPOINT FOLDER NAME SEED

An operation lasts from the call of the SDK to its return, whatever number of tries that took. Of a pop that took longer
than a lease, earlier tries may have leased messages that came back: for each lease that there was time for it is
recorded once more, as a call without an answer.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import popmq
from popmq import errors
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.load.client import FIFO_TOPIC, GROUPS, MESSAGE_GROUPS, TOPICS, body_of
from popmq_verify.load.history import Recorder

LEASES_S = (1.0, 2.5)
TIMEOUT_S = 4.0
#: Leases that one call can outlast.
TRIES = round(TIMEOUT_S / min(LEASES_S)) + 1


class SdkClient:
    """Sends, pops and ends deliveries at random until the file FOLDER/stop exists."""

    def __init__(self, endpoint: str, folder: Path, name: str, seed: int) -> None:
        self.name, self.stop = name, folder / "stop"
        self.random = random.Random(f"{seed}/{name}")
        self.client = popmq.Client(endpoint)
        self.recorder = Recorder(folder, name)
        self.tries = [Recorder(folder, f"{name}-try-{number}") for number in range(TRIES)]
        self.number = 0

    def send(self) -> None:
        """One request."""
        self.number += 1
        topic = self.random.choice(TOPICS)
        order = self.random.choice(MESSAGE_GROUPS) if topic == FIFO_TOPIC else ""
        ids = [f"{self.name}-{self.number}-{number}" for number in range(self.random.choice((1, 5, 30)))]
        messages = [popmq.Message(body_of(one), message_id=one, message_group=order) for one in ids]
        self.recorder.called("send", topic=topic, ids=ids, producer="", number=0, message_group=order)
        try:
            receipts = self.client.send(topic, messages, timeout=TIMEOUT_S)
        except errors.PopMQError as error:
            self.recorder.returned("unknown", details=repr(error))
            return
        results = [[one.queue, one.offset] for one in receipts]
        self.recorder.returned("ok", results=results, duplicate=False, codes=[0] * len(ids))

    def pop(self) -> None:
        """Pops, and ends what came in one of the ways that there are."""
        topic, group = self.random.choice(TOPICS), self.random.choice(GROUPS)
        lease_s, began = self.random.choice(LEASES_S), time.monotonic()
        asked = {"topic": topic, "group": group, "attempt_id": ""}
        self.recorder.called("pop", **asked)
        for one in self.tries:
            one.called("pop", **asked)
        try:
            found = self.client.pop(topic, group, self.random.choice((1, 8, 64)), invisible=lease_s, timeout=TIMEOUT_S)
        except errors.PopMQError as error:
            self.recorder.returned("unknown", details=repr(error))
            found = []
        else:
            self.recorder.returned("ok", **_told(found, lease_s))
        leases = (time.monotonic() - began) / min(LEASES_S)
        for number, one in enumerate(self.tries):
            one.returned("unknown" if leases > number + 1 else "refused")
        if found:
            self._end(group, found)

    def _end(self, group: str, found: list[popmq.Delivery]) -> None:
        """Acks most deliveries, extends, releases or rejects others, and forgets some."""
        fate, handles = self.random.random(), [one.handle for one in found]
        if fate < 0.10:
            self._change(group, found, "extend", 2000, lambda: self.client.extend(found, 2.0, timeout=TIMEOUT_S))
        if fate < 0.75:
            self.recorder.called("ack", group=group, handles=handles)
            codes = self._codes(lambda: self.client.ack(found, timeout=TIMEOUT_S), len(found))
            self.recorder.returned("ok" if codes else "unknown", **({"codes": codes} if codes else {}))
        elif fate < 0.90:
            self._change(group, found, "release", 150, lambda: self.client.release(found, 0.15, timeout=TIMEOUT_S))
        elif fate < 0.92:
            self._change(group, found[:1], "reject", 0, lambda: self.client.reject(found[:1], timeout=TIMEOUT_S))

    def _change(self, group: str, found: list[popmq.Delivery], kind: str, ms: int, call: Callable[[], Any]) -> None:
        """One change of several deliveries."""
        self.recorder.called("change", group=group, changes=[[one.handle, kind, ms, False] for one in found])
        results = self._results(call)
        # An earlier try may have set a deadline that is over.
        set_before = kind == "extend" and any(isinstance(one, errors.HandleLapsed) for one in results or ())
        if results is None or set_before:
            self.recorder.returned("unknown")
        else:
            told = [
                [pb.HANDLE_LAPSED, 0, False]
                if isinstance(one, errors.PopMQError)
                else [0, one.visible_ms, one.dead_lettered]
                for one in results
            ]
            self.recorder.returned("ok", results=told)

    def _codes(self, call: Callable[[], Any], count: int) -> list[int]:
        """A code for each delivery; empty if it is not known what happened to each."""
        results = self._results(call)
        if results is None:
            return []
        given = results if isinstance(results, list) and results else [None] * count
        return [pb.HANDLE_LAPSED if isinstance(one, errors.PopMQError) else 0 for one in given]

    def _results(self, call: Callable[[], Any]) -> Any:
        """A result or a HandleLapsed for each entry, or what the call returns. None: it is not known what happened."""
        try:
            return call() or []
        except errors.PartlyRefused as partly:
            results = partly.results
        except errors.HandleLapsed as lapsed:
            results = [lapsed]
        except errors.PopMQError:
            return None
        refused = [one for one in results if isinstance(one, errors.PopMQError)]
        # LeaseLost: an earlier try did it, or none.
        certain = all(isinstance(one, errors.HandleLapsed) and not isinstance(one, errors.LeaseLost) for one in refused)
        return results if certain else None

    def run(self) -> None:
        """Acts until the campaign ends."""
        while not self.stop.exists():
            if self.random.random() < 0.25:
                self.send()
            else:
                self.pop()
        for one in (self.recorder, *self.tries):
            one.close()
        self.client.close()


def _told(found: list[popmq.Delivery], lease_s: float) -> dict[str, Any]:
    """What a history keeps of deliveries. The SDK does not say when they were popped: a lease before its end."""
    until_ms = found[0].invisible_until_ms if found else 0
    rows = [
        [one.message_id, one.handle, one.attempt, one.queue, one.offset, one.body == body_of(one.message_id)]
        for one in found
    ]
    return {"popped_ms": until_ms - int(lease_s * 1000), "until_ms": until_ms, "replay": False, "rows": rows}


if __name__ == "__main__":
    endpoint, folder, name, seed = sys.argv[1:]
    SdkClient(endpoint, Path(folder), name, int(seed)).run()
