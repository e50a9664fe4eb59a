"""Pops and leases of a broker: CheckPoints, acks by offset or by bits, renewals, retries and ordered batches."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.wire.command import Request, Response
from tests.remoting.fake.log import Log, Record
from tests.remoting.fake.server import Client, Handler, ok

ORDERED = 999


@dataclass
class Lease:
    """A message that a group holds. Its key is the group, the real topic, the queue and the offset."""

    record: Record
    base_topic: str
    pop_ms: int
    invisible_ms: int
    revive: int

    @property
    def ends_ms(self) -> int:
        return self.pop_ms + self.invisible_ms


Key = tuple[str, str, int, int]


class Pops:
    """`acl`: bornTime 0 is refused, as 5.3.3 does with access control. `has_group`: whether a group exists."""

    def __init__(self, log: Log, name: str, has_group: Callable[[str], bool], acl: bool = False) -> None:
        self._log = log
        self._has_group = has_group
        self._name = name
        self._acl = acl
        self.leases: dict[Key, Lease] = {}
        #: Attempts of ordered messages.
        self._orders: dict[Key, int] = {}
        self.handlers: dict[int, Handler] = {
            RequestCode.POP_MESSAGE: self._pop,
            RequestCode.ACK_MESSAGE: self._ack,
            RequestCode.BATCH_ACK_MESSAGE: self._batch_ack,
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME: self._change,
            RequestCode.NOTIFICATION: self._notify,
            RequestCode.PEEK_MESSAGE: self._peek,
        }

    @property
    def _next(self) -> dict[tuple[str, str, int], int]:
        """The next offset to pop is the committed one: what is leased counts as read."""
        return self._log.offsets

    # ── Pop ──────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pop(self, client: Client, request: Request) -> Response:
        fields = request.fields
        group, topic, poll_ms = fields["consumerGroup"], fields["topic"], int(fields["pollTime"])
        if refusal := self._refusal(group, topic):
            return refusal
        born_ms = int(fields["bornTime"])
        if (born_ms == 0 and self._acl) or (born_ms and self._log.now_ms() - born_ms - poll_ms > 500):
            return Response(ResponseCode.POLLING_TIMEOUT, "the broker[127.0.0.1] pop message is timeout too much")
        if int(fields["maxMsgNums"]) > 32:
            return Response(ResponseCode.INVALID_PARAMETER, "at most 32")
        response = self._popped(request)
        if response is None and poll_ms:
            await self._log.until(lambda: self._ready(group, topic, -1), poll_ms)
            response = self._popped(request)
        if response is None:
            return Response(ResponseCode.POLLING_TIMEOUT if poll_ms else ResponseCode.PULL_NOT_FOUND)
        return response

    def _popped(self, request: Request) -> Response | None:
        fields = request.fields
        group, topic, queue_id = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
        ordered, room = fields["order"] == "true", int(fields["maxMsgNums"])
        pop_ms, invisible_ms = self._log.now_ms(), int(fields["invisibleTime"])
        revive = ORDERED if ordered else 3
        self._revive()
        body, starts, offsets, orders = b"", [], [], []
        for kind, real in (("2", f"%RETRY%{group}+{topic}"), ("0", topic)):
            if real not in self._log.topics:
                continue
            for index in range(len(self._log.topics[real].queues)):
                if kind == "0" and queue_id not in (-1, index):
                    continue
                taken = self._take(group, real, index, room, ordered)
                if not taken:
                    continue
                start = taken[0].queue_offset
                starts.append(f"{kind} {index} {start}")
                offsets.append(f"{kind} {index} {','.join(str(record.queue_offset) for record in taken)}")
                for record in taken:
                    key = (group, real, index, record.queue_offset)
                    self.leases[key] = Lease(record, topic, pop_ms, invisible_ms, revive)
                    if ordered:
                        orders.append(f"{kind} qo{index}%{record.queue_offset} {self._orders.get(key, 0)}")
                        self._orders[key] = self._orders.get(key, 0) + 1
                    handle = f"{start} {pop_ms} {invisible_ms} {revive} 2 {self._name} {index} {record.queue_offset}"
                    body += record.raw(topic, f"POP_CK\x01{handle}\x02") if kind == "2" else record.raw()
                room -= len(taken)
        if not body:
            return None
        numbers = {
            "popTime": pop_ms,
            "invisibleTime": invisible_ms,
            "reviveQid": revive,
            "restNum": self._rest(request),
        }
        infos = {"startOffsetInfo": starts, "msgOffsetInfo": offsets, "orderCountInfo": orders}
        return ok(body, **numbers, **{name: ";".join(each) for name, each in infos.items()})

    def _rest(self, request: Request) -> int:
        """Messages that are left in the queues of a pop."""
        group, topic, queue_id = (
            request.fields["consumerGroup"],
            request.fields["topic"],
            int(request.fields["queueId"]),
        )
        queues = enumerate(self._log.topics[topic].queues)
        return sum(
            len(queue) - self._next.get((group, topic, index), 0) for index, queue in queues if queue_id in (-1, index)
        )

    def _take(self, group: str, real: str, index: int, room: int, ordered: bool) -> list[Record]:
        """The next messages of a queue; an ordered one gives none while it holds some."""
        place = (group, real, index)
        self._log.resets.discard(place)
        queue = self._log.topics[real].queues[index]
        if ordered and any(key[:3] == place for key in self.leases):
            return []
        begin = self._next.get(place, 0)
        taken = queue[begin : begin + room]
        self._next[place] = begin + len(taken)
        if taken:
            self._log.offsets[place] = begin + len(taken)
        return taken

    def forget(self, topic: str) -> None:
        """The topic is deleted."""
        self.leases = {key: lease for key, lease in self.leases.items() if key[1] != topic}

    def _ready(self, group: str, topic: str, queue_id: int) -> bool:
        self._revive()
        for real in (f"%RETRY%{group}+{topic}", topic):
            known = self._log.topics.get(real)
            for index, queue in enumerate(known.queues if known else []):
                wanted = queue_id in (-1, index) or real != topic
                blocked = any(
                    key[:3] == (group, real, index) and lease.revive == ORDERED for key, lease in self.leases.items()
                )
                if wanted and not blocked and self._next.get((group, real, index), 0) < len(queue):
                    return True
        return False

    def _revive(self) -> None:
        """Leases that are over: a copy in the retry topic; an ordered queue goes back to its first one."""
        now_ms = self._log.now_ms()
        for key, lease in [(key, lease) for key, lease in self.leases.items() if lease.ends_ms <= now_ms]:
            del self.leases[key]
            group, real, index, offset = key
            if lease.revive == ORDERED:
                place = (group, real, index)
                self._next[place] = min(self._next.get(place, 0), offset)
            else:
                old = lease.record
                times = old.reconsume_times + 1
                retry = f"%RETRY%{group}+{lease.base_topic}"
                self._log.append(retry, 0, old.body, old.properties, born_ms=old.born_ms, reconsume_times=times)

    # ── Leases ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def _ack(self, client: Client, request: Request) -> Response:
        fields = request.fields
        topic, queue_id, offset = fields["topic"], int(fields["queueId"]), int(fields["offset"])
        if not self._log.has(topic, queue_id):
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        if not 0 <= offset < len(self._log.topics[topic].queues[queue_id]):
            return Response(ResponseCode.NO_MESSAGE, "offset is illegal")
        self._finish((fields["consumerGroup"], topic, queue_id, offset), int(fields["extraInfo"].split(" ")[1]))
        return ok()

    def _batch_ack(self, client: Client, request: Request) -> Response:
        for entry in json.loads(request.body)["acks"]:
            bits = int.from_bytes(base64.b64decode(entry["b"]), "little")
            real = f"%RETRY%{entry['c']}+{entry['t']}" if entry["r"] == "2" else entry["t"]
            for bit in range(bits.bit_length()):
                if bits >> bit & 1:
                    self._finish((entry["c"], real, entry["q"], entry["so"] + bit), entry["pt"])
        return ok()

    def _finish(self, key: Key, pop_ms: int) -> None:
        """Late acks, and acks of another pop, do nothing."""
        self._revive()
        lease = self.leases.get(key)
        if lease is not None and lease.pop_ms == pop_ms:
            del self.leases[key]
            self._log.wake()

    def _change(self, client: Client, request: Request) -> Response:
        fields = request.fields
        key = (fields["consumerGroup"], fields["topic"], int(fields["queueId"]), int(fields["offset"]))
        self._revive()
        lease = self.leases.get(key)
        now_ms, invisible_ms = self._log.now_ms(), int(fields["invisibleTime"])
        words = fields["extraInfo"].split(" ")
        if int(words[3]) == ORDERED:
            if lease is None:
                return ok()
            lease.invisible_ms = now_ms + invisible_ms - lease.pop_ms
            return ok(popTime=lease.pop_ms, invisibleTime=invisible_ms, reviveQid=ORDERED)
        if lease is None:  # acked, or over: a broker does not look, and delivers it once more
            real, queue_id, offset = key[1:]
            record, base = self._log.topics[real].queues[queue_id][offset], real.rpartition("+")[2]
            self.leases[key] = Lease(record, base, now_ms, invisible_ms, 3)
        elif lease.pop_ms == int(words[1]):
            lease.pop_ms, lease.invisible_ms = now_ms, invisible_ms
        return ok(popTime=now_ms, invisibleTime=invisible_ms, reviveQid=3)

    # ── Looking ──────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _notify(self, client: Client, request: Request) -> Response:
        fields = request.fields
        group, topic, queue_id = fields["consumerGroup"], fields["topic"], int(fields["queueId"])
        if refusal := self._refusal(group, topic):
            return refusal
        wait_ms = int(fields["pollTime"])
        if born_ms := int(fields["bornTime"]):
            wait_ms += born_ms - self._log.now_ms()
        found = await self._log.until(lambda: self._ready(group, topic, queue_id), max(0, wait_ms))
        return ok(hasMsg=found, pollingFull=False)

    def _peek(self, client: Client, request: Request) -> Response:
        fields = request.fields
        topic, group = fields["topic"], fields["consumerGroup"]
        if refusal := self._refusal(group, topic):
            return refusal
        body = b""
        for index, queue in enumerate(self._log.topics[topic].queues):
            begin = self._next.get((group, topic, index), 0)
            body += b"".join(record.raw() for record in queue[begin : begin + int(fields["maxMsgNums"])])
        return ok(body, restNum=0, popTime=self._log.now_ms()) if body else Response(ResponseCode.PULL_NOT_FOUND)

    def _refusal(self, group: str, topic: str) -> Response | None:
        if topic not in self._log.topics:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist, apply first please!")
        if not self._has_group(group):
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group}] does not exist")
        return None
