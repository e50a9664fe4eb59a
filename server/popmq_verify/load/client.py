"""One load client of the kill campaign: raw stubs, random behaviour from a seed, everything recorded.

    python -m popmq_verify.load.client ENDPOINT FOLDER NAME SEED

It runs until the file FOLDER/stop exists. Nothing here judges: the checker does, from the histories.
"""

from __future__ import annotations

import random
import sys
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_verify.load.history import Recorder
from popmq_verify.load.scratch import recreate
from popmq_verify.load.stubs import Stubs

FIFO_TOPIC = "ledger"
TOPICS = ("orders", "clicks", FIFO_TOPIC)
MESSAGE_GROUPS = ("alice", "bob", "carol")
GROUPS = ("billing", "bill")  # one name is a prefix of the other
MAX_ATTEMPTS = {"billing": 4, "bill": 17}
DEADLINE_S = 5.0
PAUSE_S = 0.02

#: Statuses that say that nothing was done. FAILED_PRECONDITION: a Settle with a handle that has lapsed.
REFUSALS = (
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.FAILED_PRECONDITION,
)

Row = list[Any]  # id, handle, attempt, queue, offset, intact


def body_of(message_id: str) -> bytes:
    """The body that belongs to an id. A consumer computes it again and compares, to find changed bytes."""
    number = zlib.crc32(message_id.encode())
    size = 1_500_000 if number % 1499 == 0 else 40_000 if number % 97 == 0 else number % 300
    return (message_id.encode() + b"|" + number.to_bytes(4, "big") * (size // 4))[: size + len(message_id) + 1]


@dataclass
class Late:
    """Handles that are kept until their lease has expired; the acks must then fail."""

    due: float
    group: str
    handles: list[str]


class Client:
    """Sends, pops, acks, settles and changes leases at random until the file FOLDER/stop exists, and records each call.

    The seed and the name determine its choices; timing is up to the machine, so no two runs are equal.
    """

    def __init__(self, endpoint: str, folder: Path, name: str, seed: int) -> None:
        """`folder` has the histories of all clients; the clients of one campaign have different names."""
        self.name, self.stop = name, folder / "stop"
        self.random = random.Random(f"{seed}/{name}")
        self.stubs = Stubs(endpoint)
        self.recorder = Recorder(folder, name)
        self.number = 0
        self.late: list[Late] = []

    # ── one call, recorded ──────────────────────────────────────────────────────────────────────────────────────────

    def call(self, kind: str, method: Any, request: Any, told: Callable[[Any], dict[str, Any]], **asked: Any) -> Any:
        """The answer, or None when there was none."""
        self.recorder.called(kind, **asked)
        try:
            answer = method(request, timeout=self._patience())
        except grpc.RpcError as error:
            self.recorder.returned(certainty(error), code=str(error.code()), details=str(error.details())[:200])
            time.sleep(PAUSE_S)
            return None
        self.recorder.returned("ok", **told(answer))
        return answer

    def _patience(self) -> float:
        """The time limit of a call: mostly enough, sometimes so short that the caller is gone when the answer comes."""
        return self.random.uniform(0.001, 0.03) if self.random.random() < 0.05 else DEADLINE_S

    def insist(self, once: Callable[[], Any]) -> Any:
        """Repeats a call that is safe to repeat until it is answered; gives up when the campaign ends."""
        while (answer := once()) is None and not self.stop.exists():
            pass
        return answer

    # ── producing ───────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self) -> None:
        """Sends 1–100 messages to a topic. Most requests have a number, and are repeated until they are answered."""
        self.number += 1
        ids = [f"{self.name}-{self.number}-{i}" for i in range(self.random.choice((1, 1, 5, 30, 100)))]
        topic = self.random.choice(TOPICS)
        order = self.random.choice(MESSAGE_GROUPS) if topic == FIFO_TOPIC else ""
        request = pb.SendRequest(topic=topic, messages=[_message(name, order) for name in ids])
        if self.random.random() < 0.3:
            self._send(request)  # without a number it cannot be repeated: an unknown outcome stays unknown
            return
        request.producer_id, request.request_number = self.name, self.number
        self.insist(lambda: self._send(request))
        if self.random.random() < 0.1:
            self._send(request)  # an answered request again: the same positions, and nothing stored

    def _send(self, request: pb.SendRequest) -> Any:
        """One try of a Send: the answer, or None."""
        return self.call(
            "send",
            self.stubs.broker.Send,
            request,
            lambda answer: {
                "results": [[result.queue, result.offset] for result in answer.results],
                "duplicate": answer.duplicate,
                "codes": [result.error.code for result in answer.results],
            },
            topic=request.topic,
            ids=[message.message_id for message in request.messages],
            producer=request.producer_id,
            number=request.request_number,
            message_group=request.messages[0].message_group,
        )

    # ── consuming ───────────────────────────────────────────────────────────────────────────────────────────────────

    def pop(self) -> None:
        """Pops from a topic and acts on the deliveries. With an attempt id the Pop is repeated until it is answered."""
        self.number += 1
        choose = self.random.choice
        request = pb.PopRequest(
            topic=choose(TOPICS),
            group=choose(GROUPS),
            max_messages=choose((1, 8, 32, 200)),
            invisible_ms=choose((1000, 1300, 2500)),
            wait_ms=choose((0, 0, 50, 300)),
            client_id=self.name,
            attempt_id=f"a{self.number}" if self.random.random() < 0.5 else "",
        )
        answer = self.insist(lambda: self._pop(request)) if request.attempt_id else self._pop(request)
        if answer is not None and answer.deliveries:
            self._handle(request, answer)

    def _pop(self, request: pb.PopRequest) -> Any:
        """One try of a Pop: the answer, or None."""
        return self.call(
            "pop",
            self.stubs.broker.Pop,
            request,
            told_of_pop,
            topic=request.topic,
            group=request.group,
            attempt_id=request.attempt_id,
        )

    def _handle(self, request: pb.PopRequest, answer: pb.PopResponse) -> None:
        """Decides what becomes of the deliveries: most are acked at once, the others extended, released, rejected,
        popped again as a replay, acked too late, or forgotten.
        """
        group, handles = request.group, [delivery.handle for delivery in answer.deliveries]
        half = len(handles) // 2
        fate = self.random.random()
        if fate < 0.55:
            self.ack(group, handles)
        elif fate < 0.60:
            self.settle(group, handles)
        elif fate < 0.70:  # the rest expires
            self.ack(group, handles[:half])
        elif fate < 0.80:
            self.change(group, handles, "extend", self.random.choice((1000, 2000)))
            self.ack(group, handles)
        elif fate < 0.88:
            self.change(group, handles[half:], "release", self.random.choice((0, 150)), self.random.random() < 0.5)
            self.ack(group, handles[:half])
        elif fate < 0.90:
            self.change(group, handles[:2], "reject")
            self.ack(group, handles[2:])
        elif fate < 0.94 and request.attempt_id:
            self._pop(request)  # a replay, on purpose
            self.ack(group, handles)
        elif fate < 0.97:
            self.late.append(Late(time.monotonic() + 3.2, group, handles))

    def ack(self, group: str, handles: list[str]) -> None:
        """Acks deliveries. After a try without an answer it mostly repeats the call, as a consumer would."""
        if not handles:
            return
        request = pb.AckRequest(group=group, handles=handles)

        def once() -> Any:
            return self.call("ack", self.stubs.broker.Ack, request, told_of_ack(handles), group=group, handles=handles)

        if once() is None and self.random.random() < 0.8:
            self.insist(once)

    def settle(self, group: str, handles: list[str]) -> None:
        """Acks deliveries and sends a message, both or neither. Mostly repeated until it is answered or refused."""
        self.number += 1
        topic, name = self.random.choice(TOPICS[:2]), f"{self.name}-{self.number}-settled"
        sends = [pb.SettleSend(topic=topic, messages=[_message(name)])]
        request = pb.SettleRequest(
            group=group, handles=handles, sends=sends, producer_id=self.name, request_number=self.number
        )
        asked: dict[str, Any] = {"group": group, "handles": handles, "topic": topic, "ids": [name]}
        asked |= {"producer": self.name, "number": self.number}
        repeats = self.random.random() < 0.8
        while self.call("settle", self.stubs.broker.Settle, request, _told_of_settle, **asked) is None:
            if not repeats or self.recorder.last == "refused" or self.stop.exists():
                break

    def change(self, group: str, handles: list[str], kind: str, ms: int = 0, uncounted: bool = False) -> None:
        """Extends, releases or rejects deliveries. One try: a client cannot know whether an unanswered one was done."""
        changes = [pb.InvisibleTimeChange(handle=handle, **_change(kind, ms, uncounted)) for handle in handles]
        if not changes:
            return
        self.call(
            "change",
            self.stubs.broker.ChangeInvisibleTime,
            pb.ChangeInvisibleTimeRequest(group=group, changes=changes),
            lambda answer: {"results": [[r.error.code, r.visible_ms, r.dead_lettered] for r in answer.results]},
            group=group,
            changes=[[handle, kind, ms, uncounted] for handle in handles],
        )

    def ack_late(self) -> None:
        """Acks the deliveries whose lease has expired meanwhile: the broker must refuse each."""
        while self.late and self.late[0].due < time.monotonic():
            lapsed = self.late.pop(0)
            self.ack(lapsed.group, lapsed.handles)

    def run(self) -> None:
        """Acts until the campaign ends: some 1 % topics deleted and created again, 24 % sends, 75 % pops."""
        while not self.stop.exists():
            self.ack_late()
            chance = self.random.random()
            if chance < 0.01:
                recreate(self, self.random.choice(GROUPS))
            elif chance < 0.25:
                self.send()
            else:
                self.pop()
        self.recorder.close()
        self.stubs.close()


def _message(name: str, message_group: str = "") -> pb.Message:
    """The message that belongs to an id."""
    return pb.Message(message_id=name, body=body_of(name), tag="t", keys=[name], message_group=message_group)


def _told_of_settle(answer: pb.SettleResponse) -> dict[str, Any]:
    """What a history keeps of an answer to Settle."""
    results = [[result.queue, result.offset] for send in answer.sends for result in send.results]
    return {"results": results, "duplicate": answer.duplicate}


def told_of_pop(answer: pb.PopResponse) -> dict[str, Any]:
    """What a history keeps of an answer to Pop (load/history.py)."""
    rows: list[Row] = [
        [
            delivery.message.message_id,
            delivery.handle,
            delivery.attempt,
            delivery.queue,
            delivery.offset,
            delivery.message.body == body_of(delivery.message.message_id),
        ]
        for delivery in answer.deliveries
    ]
    return {
        "popped_ms": answer.popped_ms,
        "until_ms": answer.invisible_until_ms,
        "replay": answer.replay,
        "rows": rows,
    }


def told_of_ack(handles: list[str]) -> Callable[[pb.AckResponse], dict[str, Any]]:
    """What a history keeps of an answer to Ack, as a function of the answer."""
    # An empty list of results says that all succeeded.
    return lambda answer: {"codes": [result.error.code for result in answer.results] or [0] * len(handles)}


def _change(kind: str, ms: int, uncounted: bool) -> dict[str, Any]:
    """The field `extend`, `release` or `reject` of an InvisibleTimeChange."""
    if kind == "extend":
        return {"extend": pb.Extend(invisible_ms=ms)}
    if kind == "release":
        return {"release": pb.Release(delay_ms=ms, uncounted=uncounted, reason="campaign")}
    return {"reject": pb.Reject(reason="campaign")}


def certainty(error: Any) -> str:
    """refused: the broker refused the call, or was never reached. Any other call may have happened."""
    if error.code() == grpc.StatusCode.UNAVAILABLE:
        return "refused" if "failed to connect" in (error.details() or "").lower() else "unknown"
    return "refused" if error.code() in REFUSALS else "unknown"


if __name__ == "__main__":
    endpoint, folder, name, seed = sys.argv[1:]
    Client(endpoint, Path(folder), name, int(seed)).run()
