"""A broker: administration, sends, pulls, offsets, transactions and clients; pops.py has the leases."""

import asyncio
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from popmq_remoting.codes import RequestCode, ResponseCode, SysFlag
from popmq_remoting.wire.command import Request, Response
from tests.remoting.fake.log import Log, Record
from tests.remoting.fake.pops import Pops
from tests.remoting.fake.server import Client, FakeServer, Handler, ok
from tests.remoting.fake.timers import Timers

HALF = "RMQ_SYS_TRANS_HALF_TOPIC"
#: transactionTimeOut: a shorter immunity from checks counts as this.
TRANSACTION_TIMEOUT_S = 6
#: Our time 0, in ms since 1970.
EPOCH_MS = 1_700_000_000_000


def loop_ms() -> int:
    """The event loop's time as time of day."""
    return EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)


class FakeBroker(FakeServer):
    """`skew_ms`: how far its clock is ahead. `version`: what it says about itself."""

    def __init__(
        self,
        name: str,
        secrets: Mapping[str, str] | None = None,
        skew_ms: int = 0,
        version: str = "V5_3_3",
        now_ms: Callable[[], int] = loop_ms,
    ) -> None:
        self.name = name
        self.log = Log(lambda: now_ms() + skew_ms)
        self.pops = Pops(self.log, name, self._has_group, acl=bool(secrets))
        self.timers = Timers(self.log, name)
        self.version = version
        #: Whether each replica has all that it has.
        self.replicas: list[bool] = []
        self.disk = "Total : 100.0 GiB, Free : 75.0 GiB."
        #: How long a message is stored before it is found by a key.
        self.index_lag_ms = 0
        #: maxTransferCountOnMessageInMemory.
        self.pull_messages = 32
        self.settings: dict[str, str] = {
            "brokerName": name,
            "autoCreateTopicEnable": "false",
            "autoCreateSubscriptionGroup": "false",
        }
        #: Called when a topic was made or deleted: the name servers are told at once.
        self.registers: Callable[[], None] = lambda: None
        #: (client id, groups) of each heartbeat's connection.
        self.members: dict[Client, dict[str, Any]] = {}
        self.modes: dict[str, dict[str, dict[str, Any]]] = {}
        #: Who has locked a queue, and until when.
        self.locks: dict[tuple[str, str, int], tuple[str, int]] = {}
        #: Half messages by their offset in the half queue, and what ended them.
        self.halves: dict[int, Record] = {}
        super().__init__(self._table(), secrets)

    def _table(self) -> dict[int, Handler]:
        return {
            **self.pops.handlers,
            **self.timers.handlers,
            RequestCode.UPDATE_AND_CREATE_TOPIC: self._create_topic,
            RequestCode.GET_TOPIC_CONFIG: self._get_topic,
            RequestCode.GET_ALL_TOPIC_CONFIG: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_BROKER: self._delete_topic,
            RequestCode.GET_TOPIC_STATS_INFO: self._topic_stats,
            RequestCode.GET_BROKER_RUNTIME_INFO: self._runtime,
            RequestCode.GET_BROKER_CONFIG: self._config,
            RequestCode.GET_BROKER_HA_STATUS: self._replication,
            RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: self._create_group,
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: self._groups,
            RequestCode.DELETE_SUBSCRIPTIONGROUP: self._delete_group,
            RequestCode.GET_CONSUME_STATS: self._group_stats,
            RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: self._groups_of_topic,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._offset_at,
            RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: self._reset_offset,
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.END_TRANSACTION: self._end,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_MESSAGE: self._query,
            RequestCode.VIEW_MESSAGE_BY_ID: self._view,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.UNREGISTER_CLIENT: self._unregister,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._member_ids,
            RequestCode.GET_CONSUMER_CONNECTION_LIST: self._connections,
            RequestCode.GET_ALL_PRODUCER_INFO: self._all_producers,
            RequestCode.GET_CONSUMER_RUNNING_INFO: self._relay,
            RequestCode.CONSUME_MESSAGE_DIRECTLY: self._consume_directly,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self._set_mode,
            RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: self._get_modes,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
        }

    # ── Administration ───────────────────────────────────────────────────────────────────────────────────────────────

    def _create_topic(self, client: Client, request: Request) -> Response:
        fields = request.fields
        pairs = (each.removeprefix("+").partition("=") for each in fields.get("attributes", "").split(",") if each)
        queues = max(int(fields["readQueueNums"]), int(fields["writeQueueNums"]))
        self.log.create(fields["topic"], queues, int(fields["perm"]), {name: value for name, _, value in pairs})
        self.registers()
        return ok()

    def _get_topic(self, client: Client, request: Request) -> Response:
        name = request.fields["topic"]
        if name not in self.log.topics:
            return Response(ResponseCode.TOPIC_NOT_EXIST, "No topic in this broker.")
        return ok(json.dumps(self._topic_config(name)).encode())

    def _all_topics(self, client: Client, request: Request) -> Response:
        table = {name: self._topic_config(name) for name in self.log.topics}
        body = json.dumps({"topicConfigTable": table, "dataVersion": {}}, separators=(",", ":"))  # as brokers write it
        return ok(body.encode())

    def _topic_config(self, name: str) -> dict[str, Any]:
        topic = self.log.topics[name]
        numbers = {"readQueueNums": len(topic.queues), "writeQueueNums": len(topic.queues), "perm": topic.perm}
        return {"topicName": name, "attributes": topic.attributes, **numbers}

    def _delete_topic(self, client: Client, request: Request) -> Response:
        topic = request.fields["topic"]
        self.log.topics.pop(topic, None)
        self.pops.forget(topic)
        self.log.offsets = {key: offset for key, offset in self.log.offsets.items() if key[1] != topic}
        self.registers()
        return ok()

    def _topic_stats(self, client: Client, request: Request) -> Response:
        topic = request.fields["topic"]
        if topic not in self.log.topics:
            return Response(ResponseCode.TOPIC_NOT_EXIST)
        rows = {
            (topic, index): {"minOffset": 0, "maxOffset": len(queue), "lastUpdateTimestamp": 0}
            for index, queue in enumerate(self.log.topics[topic].queues)
        }
        return ok(self._offset_table(rows))

    def _offset_table(self, rows: Mapping[tuple[str, int], Mapping[str, int]]) -> bytes:
        """As fastjson writes it: the keys are objects."""
        entries = (
            f'{{"brokerName":"{self.name}","queueId":{index},"topic":"{topic}"}}:{json.dumps(row)}'
            for (topic, index), row in rows.items()
        )
        return f'{{"offsetTable":{{{",".join(entries)}}}}}'.encode()

    def _runtime(self, client: Client, request: Request) -> Response:
        said = {
            "runtime": "[ 0 days, 0 hours, 1 minutes, 5 seconds ]",
            "bootTimestamp": str(self.log.now_ms() - 65_500),
            "brokerVersionDesc": self.version,
            "brokerVersion": "479",
            "commitLogDirCapacity": self.disk,
        }
        return ok(json.dumps({"table": said}).encode())

    def _replication(self, client: Client, request: Request) -> Response:
        connected = [{"addr": f"10.0.0.{number}:1", "inSync": each} for number, each in enumerate(self.replicas)]
        return ok(json.dumps({"inSyncSlaveNums": sum(self.replicas), "haConnectionInfo": connected}).encode())

    def _config(self, client: Client, request: Request) -> Response:
        return ok("\n".join(f"{name}={value}" for name, value in self.settings.items()).encode())

    def _create_group(self, client: Client, request: Request) -> Response:
        config = json.loads(request.body)
        self.log.groups[config["groupName"]] = config
        return ok()

    def _groups(self, client: Client, request: Request) -> Response:
        return ok(json.dumps({"subscriptionGroupTable": self.log.groups, "dataVersion": {}}).encode())

    def _delete_group(self, client: Client, request: Request) -> Response:
        group = request.fields["groupName"]
        self.log.groups.pop(group, None)
        self.log.offsets = {key: offset for key, offset in self.log.offsets.items() if key[0] != group}
        return ok()

    def _has_group(self, group: str) -> bool:
        """Whoever names a group creates it, if that is so set."""
        if self.settings["autoCreateSubscriptionGroup"] == "true":
            self.log.groups.setdefault(group, {"groupName": group, "retryMaxTimes": 16})
        return group in self.log.groups

    def _group_stats(self, client: Client, request: Request) -> Response:
        """Of one topic, or of all in which the group has a position."""
        group = request.fields["consumerGroup"]
        known = {topic for named, topic, _ in self.log.offsets if named == group and topic in self.log.topics}
        topics = [request.fields["topic"]] if "topic" in request.fields else sorted(known)
        rows = {
            (topic, index): {
                "brokerOffset": len(queue),
                "consumerOffset": self.log.offsets.get((group, topic, index), 0),
            }
            for topic in topics
            for index, queue in enumerate(self.log.topics[topic].queues)
        }
        return ok(self._offset_table(rows))

    def _groups_of_topic(self, client: Client, request: Request) -> Response:
        found = {group for group, topic, _ in self.log.offsets if topic == request.fields["topic"]}
        return ok(json.dumps({"groupList": sorted(found)}).encode())

    # ── Offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _query_offset(self, client: Client, request: Request) -> Response:
        fields = request.fields
        offset = self.log.offsets.get((fields["consumerGroup"], fields["topic"], int(fields["queueId"])))
        if offset is None and fields.get("setZeroIfNotFound") == "false":
            return Response(ResponseCode.QUERY_NOT_FOUND, "Not found, do not set to zero, maybe this group boot first")
        return ok(offset=offset or 0)

    def _update_offset(self, client: Client, request: Request) -> Response:
        fields = request.fields
        if not self._has_group(fields["consumerGroup"]):
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        self.log.offsets[fields["consumerGroup"], fields["topic"], int(fields["queueId"])] = int(fields["commitOffset"])
        return ok()

    def _max_offset(self, client: Client, request: Request) -> Response:
        topic, queue_id = request.fields["topic"], int(request.fields["queueId"])
        return ok(offset=len(self.log.topics[topic].queues[queue_id]) if self.log.has(topic, queue_id) else 0)

    def _min_offset(self, client: Client, request: Request) -> Response:
        return ok(offset=self.log.least.get((request.fields["topic"], int(request.fields["queueId"])), 0))

    def _offset_at(self, client: Client, request: Request) -> Response:
        queue = self.log.topics[request.fields["topic"]].queues[int(request.fields["queueId"])]
        at_ms = int(request.fields["timestamp"])
        return ok(offset=sum(record.stored_ms < at_ms for record in queue))

    def _reset_offset(self, client: Client, request: Request) -> Response:
        place = (request.fields["group"], request.fields["topic"], int(request.fields["queueId"]))
        self.log.offsets[place] = int(request.fields["offset"])
        self.log.resets.add(place)
        return ok(self._offset_table({}))

    # ── Sends ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, client: Client, request: Request) -> Response:
        return self._stored(request, [(request.body, request.fields["i"])])

    def _send_batch(self, client: Client, request: Request) -> Response:
        entries, at, body = [], 0, request.body
        while at < len(body):
            _, _, _, _, length = struct.unpack_from(">iiiii", body, at)
            at += 20 + length
            (size,) = struct.unpack_from(">h", body, at)
            entries.append((body[at - length : at], body[at + 2 : at + 2 + size].decode()))
            at += 2 + size
        return self._stored(request, entries)

    def _stored(self, request: Request, entries: list[tuple[bytes, str]]) -> Response:
        fields = request.fields
        topic, queue_id = fields["b"], max(0, int(fields["e"]))
        made_like = fields["c"] if self.settings["autoCreateTopicEnable"] == "true" else ""
        if topic not in self.log.topics and made_like == "TBW102":
            self.log.create(topic, int(fields["d"]))
            self.registers()
        if not self.log.has(topic, queue_id) and not topic.startswith("%DLQ%"):
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        half = bool(int(fields["f"]) & SysFlag.PREPARED)
        if not half and topic in self.log.topics and not self.log.topics[topic].perm & 2:
            return Response(ResponseCode.NO_PERMISSION, f"the broker[{self.name}] sending message is forbidden")
        own = dict(entry.split("\x01", 1) for entry in entries[0][1].split("\x02") if entry)
        more = {"born_ms": int(fields["g"]), "sys_flag": int(fields["f"]), "reconsume_times": int(fields["j"])}
        if not half and (due_ms := self.timers.due_ms(own)) > self.log.now_ms():
            handle = self.timers.keep(topic, queue_id, *entries[0], due_ms, own["UNIQ_KEY"], **more)
            return ok(msgId="7F00000100002A9F" + "0" * 16, queueId=0, queueOffset=0, recallHandle=handle)
        where, index = (HALF, 0) if half else (topic, queue_id)
        target = f"REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}\x02" if half else ""
        records = [self.log.append(where, index, body, text + target, **more) for body, text in entries]
        if half:
            self.halves[records[0].queue_offset] = records[0]
        ids = ",".join(f"7F00000100002A9F{record.commit_log_offset:016X}" for record in records)
        first = records[0]
        return ok(msgId=ids, queueId=queue_id, queueOffset=first.queue_offset, transactionId=first.property("UNIQ_KEY"))

    def _end(self, client: Client, request: Request) -> Response:
        """Not idempotent, as real brokers are not: a second commit stores it again."""
        fields = request.fields
        half = self.halves.get(int(fields["tranStateTableOffset"]))
        if half is None or half.property("PGROUP") != fields["producerGroup"]:
            return Response(ResponseCode.SYSTEM_ERROR, "Find prepared transaction message failed")
        immune_s, aged_ms = half.property("CHECK_IMMUNITY_TIME_IN_SECONDS"), self.log.now_ms() - half.born_ms
        first_hand = fields["fromTransactionCheck"] != "true"
        if immune_s and first_hand and aged_ms > 1000 * max(TRANSACTION_TIMEOUT_S, int(immune_s)):
            return Response(ResponseCode.ILLEGAL_OPERATION)
        if int(fields["commitOrRollback"]) == SysFlag.COMMIT:
            topic, queue_id = half.property("REAL_TOPIC"), int(half.property("REAL_QID"))
            self.log.append(topic, queue_id, half.body, half.properties, born_ms=half.born_ms)
        return ok()

    def check(self, half: Record) -> None:
        """Asks a client that named the group in a heartbeat how the transaction ended.

        As real brokers do, it stores the half message once more, and asks about this one; the first can still be ended.
        """
        more = {"born_ms": half.born_ms, "sys_flag": half.sys_flag}
        half = self.log.append(HALF, 0, half.body, half.properties, **more)
        self.halves[half.queue_offset] = half
        group = half.property("PGROUP")
        client = next(
            client
            for client, said in self.members.items()
            if any(each["groupName"] == group for each in said["producerDataSet"])
        )
        fields = {
            "topic": HALF,
            "bname": self.name,
            "tranStateTableOffset": str(half.queue_offset),
            "commitLogOffset": str(half.commit_log_offset),
            "msgId": half.property("UNIQ_KEY"),
            "transactionId": half.property("UNIQ_KEY"),
        }
        client.send(Request(RequestCode.CHECK_TRANSACTION_STATE, fields, half.raw(half.property("REAL_TOPIC"))))

    # ── Reads ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _pull(self, client: Client, request: Request) -> Response:
        """The remark is the status. A parked pull is looked at each 5 s for its end."""
        fields = request.fields
        topic, queue_id, offset = fields["topic"], int(fields["queueId"]), int(fields["queueOffset"])
        if fields["consumerGroup"] not in self.log.groups:
            return Response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, "subscription group does not exist")
        if not self.log.has(topic, queue_id):
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic}] not exist")
        queue = self.log.topics[topic].queues[queue_id]
        if int(fields["sysFlag"]) & 2 and offset == len(queue):
            wait_ms = -(-int(fields["suspendTimeoutMillis"]) // 5000) * 5000
            await self.log.until(lambda: len(queue) > offset, wait_ms)
        least = self.log.least.get((topic, queue_id), 0)
        looked_at = queue[offset : offset + min(self.pull_messages, int(fields["maxMsgNums"]))]
        numbers = {"nextBeginOffset": offset + len(looked_at), "minOffset": least, "maxOffset": len(queue)}
        numbers["suggestWhichBrokerId"] = 0
        if (place := (fields["consumerGroup"], topic, queue_id)) in self.log.resets:
            self.log.resets.remove(place)
            numbers["nextBeginOffset"] = self.log.offsets[place]
            code, status = ResponseCode.PULL_OFFSET_MOVED, "OFFSET_RESET"
        elif not queue:
            code, status = (
                ResponseCode.PULL_OFFSET_MOVED if offset else ResponseCode.PULL_NOT_FOUND,
                "NO_MESSAGE_IN_QUEUE",
            )
        elif offset < least:
            code, status = ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL"
        elif offset > len(queue):
            code, status = ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY"
        elif offset == len(queue):
            code, status = ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE"
        elif found := [record for record in looked_at if _is_tagged(record, fields)]:
            return ok(b"".join(record.raw() for record in found), **numbers)._replace(remark="FOUND")
        else:
            code, status = ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"
        return ok(**numbers)._replace(code=code, remark=status)

    def _query(self, client: Client, request: Request) -> Response:
        """The newest ones, in the order of their storing. An index knows hashes, here lengths, and whole seconds."""
        fields = request.fields
        unique = fields.get("_UNIQUE_KEY_QUERY") == "true"
        topic = self.log.topics.get(fields["topic"])
        begin_ms, end_ms = int(fields["beginTimestamp"]), int(fields["endTimestamp"])
        found = [
            record
            for queue in (topic.queues if topic else [])
            for record in queue
            if record.stored_ms <= self.log.now_ms() - self.index_lag_ms
            and begin_ms <= record.stored_ms // 1000 * 1000 <= end_ms
            and len(fields["key"])
            in map(len, [record.property("UNIQ_KEY")] if unique else record.property("KEYS").split(" "))
        ]
        found = sorted(found, key=lambda record: record.commit_log_offset)[-(32 if unique else 64) :]
        if not found:
            return Response(ResponseCode.QUERY_NOT_FOUND, "can not find message")
        return ok(b"".join(record.raw() for record in found))

    def _view(self, client: Client, request: Request) -> Response:
        record = self.log.by_place.get(int(request.fields["offset"]))
        return ok(record.raw()) if record else Response(ResponseCode.SYSTEM_ERROR, "can not find message by the offset")

    # ── Clients ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _heartbeat(self, client: Client, request: Request) -> Response:
        """A group that a later heartbeat leaves out stays, until it is unregistered."""
        said, known = json.loads(request.body), self.members.get(client)
        for kind in ("consumerDataSet", "producerDataSet") if known else ():
            named = {each["groupName"] for each in said[kind]}
            said[kind] += [each for each in self.members[client][kind] if each["groupName"] not in named]
        self.members[client] = said
        return ok()

    def _unregister(self, client: Client, request: Request) -> Response:
        said = self.members.get(client)
        if said is not None:
            for kind, name in (("consumerDataSet", "consumerGroup"), ("producerDataSet", "producerGroup")):
                said[kind] = [each for each in said[kind] if each["groupName"] != request.fields.get(name)]
        return ok()

    def _member_ids(self, client: Client, request: Request) -> Response:
        ids = self._consumers(request)
        if not ids:
            return Response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return ok(json.dumps({"consumerIdList": ids}).encode())

    def _consumers(self, request: Request) -> list[str]:
        """Ids of the members of a group that are connected."""
        return sorted(
            said["clientID"]
            for member, said in self.members.items()
            if member in self.clients
            for each in said["consumerDataSet"]
            if each["groupName"] == request.fields["consumerGroup"]
        )

    def _connections(self, client: Client, request: Request) -> Response:
        found = [
            {"clientId": id, "clientAddr": "127.0.0.1:1", "language": "PYTHON", "version": 479}
            for id in self._consumers(request)
        ]
        if not found:
            return Response(ResponseCode.CONSUMER_NOT_ONLINE, "the consumer group not online")
        return ok(json.dumps({"connectionSet": found}).encode())

    def _all_producers(self, client: Client, request: Request) -> Response:
        data: dict[str, list[dict[str, Any]]] = {}
        for member, said in self.members.items():
            row = {"clientId": said["clientID"], "lastUpdateTimestamp": self.log.now_ms()}
            for each in said["producerDataSet"] if member in self.clients else ():
                data.setdefault(each["groupName"], []).append(row)
        return ok(json.dumps({"data": data}).encode())

    async def _relay(self, client: Client, request: Request) -> Response:
        """Asks the member on its own connection; its answer is the broker's."""
        group, name = request.fields["consumerGroup"], request.fields["clientId"]
        for member, said in self.members.items():
            groups = [each["groupName"] for each in said["consumerDataSet"]]
            if member in self.clients and said["clientID"] == name and group in groups:
                return await member.ask(request)
        return Response(ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{name}> not online")

    async def _consume_directly(self, client: Client, request: Request) -> Response:
        """With the message, which the offset id names."""
        record = self.log.by_place[int(request.fields["msgId"][16:], 16)]
        fields = {**request.fields, "brokerName": self.name}
        return await self._relay(client, request._replace(fields=fields, body=record.raw()))

    def _set_mode(self, client: Client, request: Request) -> Response:
        said = json.loads(request.body)
        mode = {name: said[name] for name in ("mode", "popShareQueueNum")}
        self.modes.setdefault(said["topic"], {})[said["consumerGroup"]] = mode
        return ok()

    def _get_modes(self, client: Client, request: Request) -> Response:
        return ok(json.dumps({"messageRequestModeMap": self.modes}).encode())

    def _lock(self, client: Client, request: Request) -> Response:
        said, now_ms = json.loads(request.body), self.log.now_ms()
        mine = []
        for queue in said["mqSet"]:
            holder, until_ms = self.locks.get(_key(said, queue), ("", 0))
            if holder == said["clientId"] or until_ms <= now_ms:
                self.locks[_key(said, queue)] = said["clientId"], now_ms + 60_000
                mine.append(queue)
        return ok(json.dumps({"lockOKMQSet": mine}).encode())

    def _unlock(self, client: Client, request: Request) -> Response:
        said = json.loads(request.body)
        for queue in said["mqSet"]:
            if self.locks.get(_key(said, queue), ("", 0))[0] == said["clientId"]:
                del self.locks[_key(said, queue)]
        return ok()


def _key(said: dict[str, Any], queue: dict[str, Any]) -> tuple[str, str, int]:
    return said["consumerGroup"], queue["topic"], queue["queueId"]


def _is_tagged(record: Record, fields: Mapping[str, str]) -> bool:
    """As brokers filter: of tags they know a hash, here the length."""
    if fields["subscription"] == "*" or fields["expressionType"] != "TAG":
        return True
    return len(record.property("TAGS")) in {len(tag.strip()) for tag in fields["subscription"].split("||")}
