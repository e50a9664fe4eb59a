"""Bad requests by subject: names, pops, owners, settings, looks, lists, times, sinks."""

from collections.abc import Callable, Iterator
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.values.handles import read_recall, recall_text
from tests.wire.cases import HOUR_12, INT64, ODD_NAMES, Case, bad, out_of_range
from tests.wire.stubs import GROUP, TOPIC
from tests.wire.world import OTHER_GROUP, OTHER_TOPIC, SCHEDULE, STAGE, World, token, with_fields

#: Invalid filters.
ODD_SQL = ["", " ", "a =", "a = 1 b", "a == 1", "'a", "/*", "a > 'x'", "1", "\0", "🦀", "(" * 8192, "a" * 16385]
ODD_TAGS = ["||", "a|b", "a b", "a || b\0", "||".join(map(str, range(257))), "a||" * 6000]


def bad_names() -> Iterator[Case]:
    """Every name of every request: odd, too long, of nothing that exists."""
    places = {
        "topic": [
            "Broker/Send",
            "Broker/Stage",
            "Broker/Recall",
            "Broker/Reschedule",
            "Broker/Pop",
            "Broker/QueryAssignment",
            "Broker/WaitAvailable",
            "Broker/Peek",
            "Admin/LookUp",
            "Admin/SetFilter",
            "Admin/ListMessageGroups",
            "Admin/ResumeMessageGroup",
        ],
        "topic__name": ["Admin/CreateTopic", "Admin/UpdateTopic"],
        "group": [
            *("Broker/Pop", "Broker/Ack", "Broker/ChangeInvisibleTime", "Broker/QueryAssignment", "Broker/Heartbeat"),
            *("Broker/AttachOwner", "Broker/RenewOwner", "Broker/AckUpTo", "Broker/ReleaseOwner"),
            *("Broker/WaitAvailable", "Admin/SetFilter", "Admin/ListMessageGroups", "Admin/ResumeMessageGroup"),
            *("Broker/Peek", "Broker/Settle", "Broker/GetResults", "Broker/ForgetResults", "Admin/EndLease"),
            *("Broker/StoreResults",),
        ],
        "group__name": ["Admin/CreateGroup", "Admin/UpdateGroup"],
        "name": ["Admin/GetTopic", "Admin/DeleteTopic", "Admin/PurgeTopic", "Admin/GetGroup", "Admin/DeleteGroup"],
    }
    for field, methods in places.items():
        for name in methods:
            for odd in ODD_NAMES:
                if name in ("Admin/GetTopic", "Broker/QueryAssignment") and "%RETRY%" in odd:
                    continue  # retry topics are shown by name, and are pulled
                yield bad(name, "INVALID_FIELD", field.replace("__", "."), **{field: odd})
            if name not in ("Admin/CreateTopic", "Admin/CreateGroup"):
                what = "TOPIC" if "topic" in field or "Topic" in name else "GROUP"
                yield bad(name, f"{what}_NOT_FOUND", field.replace("__", "."), **{field: "nobody"})
            if "group" in field or (field == "name" and "Group" in name):
                yield bad(name, "INVALID_FIELD", field.replace("__", "."), **{field: "x" * 121})
    yield bad("Admin/CreateTopic", "INVALID_FIELD", "topic.name", topic__name=f"%DLQ%{GROUP}")
    yield bad("Broker/Heartbeat", "INVALID_FIELD", "topics[1]", topics=[TOPIC, "a b"])
    yield bad("Broker/AttachOwner", "TOPIC_NOT_FOUND", "topic", topic="nobody", create_group=True, group="made")
    for name, field in (
        ("Admin/GetStats", "topic"),
        ("Admin/GetStats", "group"),
        ("Admin/GetHistory", "topic"),
        ("Admin/GetHistory", "group"),
        ("Admin/ListLeases", "topic"),
        ("Admin/ListLeases", "group"),
        ("Admin/ListOwners", "group"),
        ("Admin/Why", "topic"),
        ("Admin/Why", "group"),
        ("Admin/RedriveDeadLetters", "group"),
        ("Admin/DiscardDeadLetters", "group"),
        ("Admin/ListDeadLetterReasons", "group"),
        ("Admin/ListDelayed", "topic"),
        ("Admin/ListTransactions", "topic"),
        ("Broker/AttachOwner", "topic"),
    ):
        for odd in ODD_NAMES[1:]:
            if name in ("Admin/GetStats", "Admin/GetHistory") and field == "topic" and "%RETRY%" in odd:
                continue
            yield bad(name, "INVALID_FIELD", field, **{field: odd})
        yield bad(name, f"{field.upper()}_NOT_FOUND", field, **{field: "nobody"})


def bad_pops() -> list[Case]:
    pop = "Broker/Pop"
    return [
        *out_of_range(pop, "max_messages", 4097, 2**32 - 1),
        *out_of_range(pop, "max_bytes", (16 << 20) + 1, 2**32 - 1),
        *out_of_range(pop, "wait_ms", -1, 60_001, *INT64),
        *out_of_range(pop, "invisible_ms", -1, 1, 999, HOUR_12 + 1, *INT64),
        *out_of_range(pop, "format", 2, -1),
        bad(pop, "INVALID_FIELD", "queues[0]", queues=[1]),
        bad(pop, "INVALID_FIELD", "queues[1]", queues=[0, 2**32 - 1]),
        bad(pop, "INVALID_FIELD", "client_id", client_id="c" * 129),
        bad(pop, "INVALID_FIELD", "client_id", client_id="é" * 65),
        *(bad(pop, "INVALID_FIELD", "client_id", client_id=f"a{one}b") for one in "\n\x1b\x7f\x9b\u2028\u202e"),
        bad(pop, "INVALID_FIELD", "attempt_id", attempt_id="a" * 65),
        bad(pop, "INVALID_FIELD", "attempt_id", attempt_id="a", token=token),
        bad(pop, "FILTER_CONFLICT", "filter", filter=pb.Filter(tag="a || b")),
        bad(pop, "FILTER_CONFLICT", "filter", filter=pb.Filter(sql92="a = 1")),
        *(bad(pop, "FILTER_INVALID", "filter.sql92", filter=pb.Filter(sql92=text)) for text in ODD_SQL),
        *(bad(pop, "FILTER_INVALID", "filter.tag", filter=pb.Filter(tag=text)) for text in ODD_TAGS),
        *(bad("Admin/SetFilter", "FILTER_INVALID", "filter.sql92", filter=pb.Filter(sql92=text)) for text in ODD_SQL),
        *(bad("Admin/SetFilter", "FILTER_INVALID", "filter.tag", filter=pb.Filter(tag=text)) for text in ODD_TAGS),
        bad(pop, "INVALID_FIELD", "token.owner", token=lambda world: token(world, owner="")),
        bad(pop, "INVALID_FIELD", "token.owner", token=lambda world: token(world, owner="o" * 65)),
        bad(pop, "INVALID_FIELD", "token.epoch", token=lambda world: token(world, epoch=0)),
        bad(pop, "INVALID_FIELD", "token.epoch", token=lambda world: token(world, epoch=2**63)),
        bad(pop, "INVALID_FIELD", "token.generation", token=lambda world: token(world, generation=0)),
        bad(pop, "INVALID_FIELD", "token.generation", token=lambda world: token(world, generation=99)),
        bad(pop, "INVALID_FIELD", "token.upto.queues[0]", token=lambda world: token(world, upto=position(-1))),
        bad(pop, "OWNER_NOT_FOUND", "token.owner", token=lambda world: token(world, owner="nobody")),
        bad(pop, "FENCED", "token.generation", token=lambda world: token(world, generation=1)),
        bad(pop, "EPOCH_ALREADY_ACKED", "token.epoch", token=lambda world: token(world, epoch=1)),
    ]


def position(offset: int) -> pb.Position:
    return pb.Position(queues={0: offset})


def bad_owners() -> Iterator[Case]:
    for name in ("Broker/AttachOwner", "Broker/RenewOwner", "Broker/AckUpTo", "Broker/ReleaseOwner"):
        yield bad(name, "INVALID_FIELD", "owner", owner="")
        yield bad(name, "INVALID_FIELD", "owner", owner="o" * 65)
        yield bad(name, "INVALID_FIELD", "owner", owner="é" * 33)
        if name != "Broker/AttachOwner":
            yield bad(name, "OWNER_NOT_FOUND", "owner", owner="nobody")
            yield bad(name, "FENCED", "generation", generation=1)
            yield bad(name, "INVALID_FIELD", "generation", generation=99)
            yield bad(name, "INVALID_FIELD", "generation", generation=2**64 - 1)
    yield from out_of_range("Broker/AttachOwner", "lease_ms", 0, -1, 999, HOUR_12 + 1, *INT64)
    yield from out_of_range("Broker/RenewOwner", "lease_ms", 0, -1, 999, HOUR_12 + 1, *INT64)
    yield from out_of_range("Broker/RenewOwner", "generation", 0)
    yield from out_of_range("Broker/AckUpTo", "generation", 0)
    yield from out_of_range("Broker/AckUpTo", "epoch", 0, 2**63, 2**64 - 1)
    yield from out_of_range("Broker/AttachOwner", "start__timestamp_ms", -1, 1)
    never = pb.StartPosition(timestamp_ms=2**62, **{"from": pb.TIMESTAMP})
    yield bad("Broker/AttachOwner", "INVALID_FIELD", "start.timestamp_ms", start=never)
    latest = pb.StartPosition(**{"from": pb.TIMESTAMP})
    yield bad("Broker/AttachOwner", "INVALID_FIELD", "start.timestamp_ms", start=latest)
    unknown = pb.StartPosition(**{"from": 3})
    yield bad("Broker/AttachOwner", "INVALID_FIELD", "start.from", start=unknown)
    yield from out_of_range("Broker/WaitAvailable", "wait_ms", -1, 60_001, *INT64)
    yield bad("Broker/WaitAvailable", "INVALID_FIELD", "upto.queues[0]", upto=position(-1))


def bad_settings() -> list[Case]:
    topic, group = "Admin/CreateTopic", "Admin/CreateGroup"
    return [
        *out_of_range(topic, "topic__queues", 1025, 2**32 - 1),
        *out_of_range(topic, "topic__retention__keep_ms", -1, 1, 59_999, 315_360_000_001, *INT64),
        *out_of_range(topic, "topic__type", 7, -1),
        bad(topic, "INVALID_FIELD", "topic.type", topic__type=pb.LITE + 1),
        bad(topic, "INVALID_FIELD", "topic.queues", topic__type=pb.LITE, topic__queues=2),
        bad(topic, "INVALID_FIELD", "topic.lite", topic__lite=pb.LiteTopics(ttl_ms=60_000)),
        bad(topic, "ALREADY_EXISTS", "topic.name", topic__name=TOPIC, topic__queues=7),
        bad(topic, "ALREADY_EXISTS", "topic.name", topic__name=TOPIC, topic__queues=1, topic__retention__by_age=True),
        *(case for name in (topic, "Admin/UpdateTopic") for case in bad_topic_limits(name)),
        bad(topic, "ALREADY_EXISTS", "topic.name", topic__name=TOPIC, topic__queues=1, topic__unique_ids_ms=1),
        bad(
            topic,
            "ALREADY_EXISTS",
            "topic.name",
            topic__name=TOPIC,
            topic__queues=1,
            topic__quota=pb.Quota(message_bytes=1),
        ),
        *out_of_range("Admin/UpdateTopic", "topic__queues", 1025),
        bad("Admin/UpdateTopic", "INVALID_FIELD", "topic.queues", topic__name="flights", topic__queues=7),
        *out_of_range("Admin/UpdateTopic", "topic__retention__keep_ms", -1, 59_999, 315_360_000_001),
        *out_of_range("Admin/UpdateTopic", "topic__type", 7),
        bad("Admin/UpdateTopic", "INVALID_FIELD", "topic.type", topic__type=pb.FIFO),
        *(case for name in (group, "Admin/UpdateGroup") for case in bad_group_settings(name)),
        bad(group, "ALREADY_EXISTS", "group.name", group__name=GROUP, group__max_attempts=3),
        *out_of_range("Admin/Browse", "max_messages", 4097, 2**32 - 1),
        *out_of_range("Admin/Browse", "offset", -1, INT64[0]),
        *out_of_range("Admin/Browse", "queue", 1, 2**32 - 1),
        *(bad("Admin/Browse", "INVALID_FIELD", "topic", topic=odd) for odd in ODD_NAMES if "%RETRY%" not in odd),
        *(
            bad("Admin/Browse", "INVALID_FIELD", "topic", topic=f"%RETRY%{odd}")
            for odd in ("", GROUP, f"{GROUP}+", f"+{TOPIC}", f"{GROUP}+a b", "a b+c", "x" * 121 + "+t", "x" * 100_000)
        ),
        bad("Admin/Browse", "TOPIC_NOT_FOUND", "topic", topic="nobody"),
        bad("Admin/Browse", "TOPIC_NOT_FOUND", "topic", topic="%DLQ%nobody"),
        bad("Admin/Browse", "TOPIC_NOT_FOUND", "topic", topic=f"%RETRY%nobody+{TOPIC}"),
        bad("Admin/Browse", "TOPIC_NOT_FOUND", "topic", topic=f"%RETRY%{GROUP}+nobody"),
        *out_of_range("Admin/ListLeases", "max_leases", 4097, 2**32 - 1),
    ]


def bad_looks() -> Iterator[Case]:
    """Single messages: looked at, looked up, asked about, redriven."""
    for name in ("Broker/Peek", "Admin/LookUp"):
        yield from out_of_range(name, "max_messages", 4097, 2**32 - 1)
    yield bad("Broker/Peek", "FILTER_CONFLICT", "filter", filter=pb.Filter(tag="a"))
    yield bad("Broker/Peek", "FILTER_INVALID", "filter.sql92", filter=pb.Filter(sql92="a >"))
    look = "Admin/LookUp"
    yield bad(look, "INVALID_FIELD", "message_id", message_id="")
    yield bad(look, "INVALID_FIELD", "message_id", key="k")
    yield bad(look, "INVALID_FIELD", "message_id", message_id="m" * 129)
    yield bad(look, "INVALID_FIELD", "key", message_id="", key="k" * 129)
    yield from out_of_range(look, "from_ms", -1, INT64[0])
    yield from out_of_range(look, "until_ms", -1, INT64[0])
    yield bad(look, "INVALID_FIELD", "until_ms", from_ms=6, until_ms=5)
    yield bad(look, "INVALID_FIELD", "topic", topic=f"%RETRY%{GROUP}+{TOPIC}")
    yield bad("Admin/Why", "INVALID_FIELD", "message_id", message_id="")
    yield bad("Admin/Why", "INVALID_FIELD", "message_id", message_id="m" * 129)
    yield bad("Admin/Why", "MESSAGE_NOT_FOUND", "message_id", message_id="nobody")
    yield bad("Admin/Why", "MESSAGE_NOT_FOUND", "message_id", topic="flights")
    for redrive in ("Admin/RedriveDeadLetters", "Admin/DiscardDeadLetters"):
        yield bad(redrive, "TOPIC_NOT_FOUND", "group", group="")
        yield bad(redrive, "INVALID_FIELD", "topic", topic="a b")
        yield bad(redrive, "INVALID_FIELD", "offsets", offsets=[0] * 4097)
        yield bad(redrive, "INVALID_FIELD", "offsets[1]", offsets=[0, -1])
        yield bad(redrive, "INVALID_FIELD", "message_ids", message_ids=["a"] * 4097)
        yield bad(redrive, "INVALID_FIELD", "message_ids[1]", message_ids=["a", ""])
        yield bad(redrive, "INVALID_FIELD", "message_ids[0]", message_ids=["m" * 129])
        yield bad(redrive, "INVALID_FIELD", "reason", reason="r" * 4097)
    yield bad("Admin/ListDeadLetterReasons", "TOPIC_NOT_FOUND", "group", group="")
    yield bad("Admin/ListDeadLetterReasons", "INVALID_FIELD", "topic", topic="a b")
    yield bad("Admin/ListDeadLetterReasons", "INVALID_FIELD", "page_token", page_token="x")
    for name, field in (("Admin/GetTopic", "name"), ("Admin/GetStats", "topic"), ("Admin/GetHistory", "topic")):
        for odd in (f"%RETRY%{GROUP}", f"%RETRY%+{TOPIC}", f"%RETRY%{GROUP}+a b"):
            yield bad(name, "INVALID_FIELD", field, **{field: odd})
        yield bad(name, "TOPIC_NOT_FOUND", field, **{field: f"%RETRY%{GROUP}+nobody"})
        yield bad(name, "TOPIC_NOT_FOUND", field, **{field: f"%RETRY%nobody+{TOPIC}"})


def bad_topic_limits(name: str) -> list[Case]:
    return [
        *out_of_range(name, "topic__retention__max_bytes", -1, 1, (1 << 20) - 1, INT64[0]),
        *out_of_range(name, "topic__unique_ids_ms", -1, 86_400_001, *INT64),
        *out_of_range(name, "topic__quota__message_bytes", (4 << 20) + 1, 2**32 - 1),
    ]


def bad_group_settings(name: str) -> list[Case]:
    delays = "group__backoff__delays_ms"
    return [
        *out_of_range(name, "group__max_attempts", 1001, 2**32 - 1),
        *out_of_range(name, "group__invisible_ms", -1, 999, HOUR_12 + 1, *INT64),
        *out_of_range(name, "group__share_number", 10_001, 2**32 - 1),
        *out_of_range(name, "group__in_flight_max", 1_000_001, 2**32 - 1),
        *out_of_range(name, "group__snoozes_max", 10_001, 2**32 - 1),
        bad(name, "INVALID_FIELD", "group.backoff.delays_ms", **{delays: [1] * 65}),
        bad(name, "INVALID_FIELD", "group.backoff.delays_ms[1]", **{delays: [0, -1]}),
        bad(name, "INVALID_FIELD", "group.backoff.delays_ms[0]", **{delays: [HOUR_12 + 1]}),
        bad(name, "INVALID_FIELD", "group.start.timestamp_ms", group__start__timestamp_ms=5),
        *out_of_range(name, "group__start__from", 3, -1),
        *bad_fair_keys(name),
    ]


def bad_fair_keys(name: str) -> Iterator[Case]:
    fair, good = "group.fair_keys", pb.FairKeys(property="p")

    def wrong(field: str, **changes: Any) -> Case:
        made = pb.FairKeys()
        made.CopyFrom(good)
        made.MergeFrom(pb.FairKeys(**changes))
        return bad(name, "INVALID_FIELD", f"{fair}.{field}", group__fair_keys=made)

    yield bad(name, "INVALID_FIELD", f"{fair}.key", group__fair_keys=pb.FairKeys(in_flight_max=1))
    yield bad(name, "INVALID_FIELD", f"{fair}.key", group__fair_keys=pb.FairKeys(message_key=False))
    yield bad(name, "INVALID_FIELD", f"{fair}.property", group__fair_keys=pb.FairKeys(property=""))
    yield wrong("property", property="p" * 129)
    yield wrong("label_separator", label_separator="/" * 17)
    yield wrong("in_flight_max", in_flight_max=1_000_001)
    yield wrong("messages_per_s", messages_per_s=1_000_001)
    yield wrong("exceptions[0].in_flight_max", exceptions=[pb.FairKeyLimits(key="k", in_flight_max=1_000_001)])
    yield wrong("exceptions", exceptions=[pb.FairKeyLimits(key="k"), pb.FairKeyLimits(key="k")])
    yield wrong("exceptions", exceptions=[pb.FairKeyLimits(key=str(number)) for number in range(1001)])


def bad_lists() -> list[Case]:
    ack, change = "Broker/Ack", "Broker/ChangeInvisibleTime"
    return [
        bad(ack, "INVALID_FIELD", "handles", handles=[]),
        bad(ack, "INVALID_FIELD", "handles", handles=["x"] * 4097),
        bad(change, "INVALID_FIELD", "changes", changes=[]),
        bad(change, "INVALID_FIELD", "changes", changes=[pb.InvisibleTimeChange()] * 4097),
        bad("Broker/QueryAssignment", "INVALID_FIELD", "client_id", client_id=""),
        bad("Broker/QueryAssignment", "INVALID_FIELD", "client_id", client_id="c" * 129),
        bad("Broker/Heartbeat", "INVALID_FIELD", "client_id", client_id=""),
        bad("Broker/Heartbeat", "INVALID_FIELD", "client_id", client_id="c" * 129),
        bad("Broker/Heartbeat", "INVALID_FIELD", "client_id", client_id="a\x1b[2J"),
        bad("Broker/QueryAssignment", "INVALID_FIELD", "client_id", client_id="a\x1b[2J"),
        bad("Broker/Heartbeat", "INVALID_FIELD", "topics", topics=[TOPIC] * 4097),
    ]


def bad_settles() -> Iterator[Case]:
    """What a Settle cannot hold; what it finds of state is in test_settle.py."""
    settle, message = "Broker/Settle", pb.Message(body=b"x")
    release, extend = pb.InvisibleTimeChange(release=pb.Release()), pb.Extend(invisible_ms=1000)
    yield bad(settle, "INVALID_FIELD", "handles", handles=[])
    yield bad(settle, "INVALID_FIELD", "handles", handles=["x"] * 4097)
    yield bad(settle, "INVALID_FIELD", "changes", changes=[release] * 4096)
    yield bad(settle, "INVALID_FIELD", "changes[1]", changes=[release, pb.InvisibleTimeChange()])
    yield bad(settle, "INVALID_FIELD", "changes[0].extend", changes=[pb.InvisibleTimeChange(extend=extend)])
    yield bad(settle, "INVALID_HANDLE", "handles[0]", handles=["x"])
    yield bad(settle, "INVALID_HANDLE", "changes[0].handle", changes=[release])
    yield bad(settle, "INVALID_FIELD", "request_number", producer_id="p")
    yield bad(settle, "INVALID_FIELD", "producer_id", producer_id="p" * 65, request_number=1)
    for field, code, sends in (
        ("sends", "INVALID_FIELD", [pb.SettleSend()] * 4097),
        ("sends[0].topic", "INVALID_FIELD", [settle_send("a b", message)]),
        ("sends[0].topic", "INVALID_FIELD", [settle_send(f"%DLQ%{GROUP}", message)]),
        ("sends[0].topic", "TOPIC_NOT_FOUND", [settle_send("nobody", message)]),
        ("sends[1].topic", "INVALID_FIELD", [settle_send(TOPIC, message)] * 2),
        ("sends[1].messages", "INVALID_FIELD", [settle_send(TOPIC, message), settle_send(OTHER_TOPIC)]),
        ("sends", "INVALID_FIELD", [settle_send(TOPIC, *[message] * 4096), settle_send(OTHER_TOPIC, message)]),
        ("sends[0].messages[1].body", "INVALID_FIELD", [settle_send(TOPIC, message, pb.Message())]),
        (
            "sends[0].messages[0].transaction",
            "INVALID_FIELD",
            [settle_send(TOPIC, pb.Message(body=b"x", transaction=True))],
        ),
        (
            "sends[0].messages[0].message_group",
            "INVALID_FIELD",
            [settle_send(TOPIC, pb.Message(body=b"x", message_group="a"))],
        ),
    ):
        yield bad(settle, code, field, sends=sends)


def bad_results() -> Iterator[Case]:
    """What an Ack or a Settle cannot give, and how results are not asked for."""
    result, large = pb.DeliveryResult, b"x" * ((256 << 10) + 1)
    for name in ("Broker/Ack", "Broker/Settle"):
        for field, results in (
            ("results", [result(), result(handle=1)]),
            ("results[0].handle", [result(handle=1)]),
            ("results[0].body", [result(body=large)]),
            ("results[0].content_type", [result(content_type="text")]),
            ("results[0].content_type", [result(content_type="text/" + "x" * 60)]),
            ("results[0].content_type", [result(content_type="text/\n")]),
        ):
            yield bad(name, "INVALID_FIELD", field, handles=["x"], results=results)
        yield bad(name, "INVALID_FIELD", "results[1].handle", handles=["x", "y"], results=[result(), result()])
        much = [result(handle=at, body=large[:-1]) for at in range(65)]
        yield bad(name, "INVALID_FIELD", "results", handles=["x"] * 65, results=much)

    def named(message_id: str = "x", **more: Any) -> pb.MessageResult:
        return pb.MessageResult(message_id=message_id, **more)

    for field, rows in (
        ("results", []),
        ("results", [named()] * 4097),
        ("results", [named(body=large[:-1])] * 65),
        ("results[1].message_id", [named(), named("")]),
        ("results[0].message_id", [named("x" * 129)]),
        ("results[0].body", [named(body=large)]),
        ("results[0].content_type", [named(content_type="text")]),
    ):
        yield bad("Broker/StoreResults", "INVALID_FIELD", field, results=rows)
    yield bad("Broker/StoreResults", "INVALID_FIELD", "group", group=OTHER_GROUP)
    for name in ("Broker/GetResults", "Broker/ForgetResults"):
        yield bad(name, "INVALID_FIELD", "message_ids", message_ids=[])
        yield bad(name, "INVALID_FIELD", "message_ids", message_ids=["x"] * 4097)
        yield bad(name, "INVALID_FIELD", "message_ids[1]", message_ids=["x", ""])
        yield bad(name, "INVALID_FIELD", "message_ids[0]", message_ids=["x" * 129])
        yield bad(name, "INVALID_FIELD", "group", group=OTHER_GROUP)
    yield bad("Broker/GetResults", "INVALID_FIELD", "wait_ms", wait_ms=60_001)
    yield bad("Broker/GetResults", "INVALID_FIELD", "min_results", min_results=4097)
    yield bad("Broker/GetResults", "INVALID_FIELD", "max_bytes", max_bytes=(16 << 20) + 1)
    yield bad("Admin/CreateGroup", "INVALID_FIELD", "group.results_keep_ms", group__results_keep_ms=59_999)
    yield bad("Broker/Send", "INVALID_FIELD", "topic", topic=f"%RESULT%{GROUP}")


def settle_send(topic: str, *messages: pb.Message) -> pb.SettleSend:
    return pb.SettleSend(topic=topic, messages=messages)


def bad_times() -> Iterator[Case]:
    """Delayed messages and transactions; refusals of single ends are in test_transactions.py."""
    recall = "Broker/Recall"
    bad_handles: list[Any] = [
        "",
        "x",
        "A" * 44,
        "x" * 100_000,
        "é" * 44,
        lambda world: world.recall_handle[:-1],
        lambda world: world.recall_handle.swapcase(),
        lambda world: world.transaction_id,
        lambda world: world.live,
    ]
    for handle in bad_handles:
        yield bad(recall, "INVALID_FIELD", "recall_handle", recall_handle=handle)
    yield bad(recall, "INVALID_FIELD", "recall_handle", topic=TOPIC)
    for field in ("topic_id", "clock", "due_ms", "number", "nonce"):
        yield bad(recall, "MESSAGE_NOT_FOUND", "recall_handle", recall_handle=forged(field))
    yield from bad_reschedules()
    yield bad("Broker/EndTransaction", "INVALID_FIELD", "ends", ends=[])
    yield bad("Broker/EndTransaction", "INVALID_FIELD", "ends", ends=[pb.TransactionEnd()] * 4097)
    yield from bad_sinks()
    yield from bad_schedules()
    yield from out_of_range("Admin/ListDelayed", "max_messages", 4097, 2**32 - 1)
    yield from out_of_range("Admin/ListDelayed", "until_ms", -1, INT64[0])
    yield from out_of_range("Admin/ListTransactions", "max_messages", 4097, 2**32 - 1)
    yield from out_of_range("Admin/ListMessageGroups", "max_message_groups", 4097, 2**32 - 1)
    resume = "Admin/ResumeMessageGroup"
    for message_group, code in (("", "INVALID_FIELD"), ("x" * 65, "INVALID_FIELD"), ("b", "MESSAGE_NOT_FOUND")):
        yield bad(resume, code, "message_group", message_group=message_group)
    yield bad(resume, "INVALID_FIELD", "topic", topic=TOPIC)


def bad_sinks() -> Iterator[Case]:
    """Sinks; refusals of single messages are in test_sinks.py."""
    stage, commit, drop = "Broker/Stage", "Broker/CommitBatch", "Broker/DropStages"
    name = pb.StageName(stage_id=STAGE, topic=TOPIC, messages=1)
    for method_name, field in (*((stage, field) for field in ("sink", "stage_id")), (commit, "sink"), (drop, "sink")):
        for odd in ("", "x" * 129, "é" * 65):
            yield bad(method_name, "INVALID_FIELD", field, **{field: odd})
    for method_name in (stage, commit):
        yield from out_of_range(method_name, "batch", 2**63, 2**64 - 1)
    for method_name in (commit, drop):
        yield bad(method_name, "INVALID_FIELD", "stages", stages=[name] * 4097)
        yield bad(method_name, "INVALID_FIELD", "stages[1].stage_id", stages=[name, pb.StageName(topic=TOPIC)])
        yield bad(method_name, "INVALID_FIELD", "stages[0].topic", stages=[pb.StageName(stage_id=STAGE, topic="a b")])
    yield bad(drop, "INVALID_FIELD", "stages", stages=[])
    yield bad(stage, "INVALID_FIELD", "messages", messages=[])
    yield bad(stage, "INVALID_FIELD", "messages", messages=[pb.Message(body=b"x")] * 4097)
    yield bad(stage, "INVALID_FIELD", "stage_id", stage_id=STAGE, batch=2)
    yield bad(commit, "INVALID_FIELD", "stages", stages=[name, name])
    for odd_name in ({"stage_id": "other"}, {"topic": OTHER_TOPIC}, {"messages": 2}):
        yield bad(commit, "STAGE_NOT_FOUND", "stages[0]", stages=[with_fields(name, **odd_name)])
    yield bad(commit, "STAGE_NOT_FOUND", "stages[0]", sink="other")


def bad_reschedules() -> Iterator[Case]:
    move = "Broker/Reschedule"
    yield bad(move, "INVALID_FIELD", "recall_handle", recall_handle="x")
    yield bad(move, "INVALID_FIELD", "recall_handle", topic=TOPIC)
    yield bad(move, "MESSAGE_NOT_FOUND", "recall_handle", recall_handle=forged("nonce"))
    yield bad(move, "INVALID_FIELD", "delay_ms", delay_ms=0)
    yield bad(move, "INVALID_FIELD", "delay_ms", deliver_at_ms=1)
    yield bad(move, "INVALID_FIELD", "delay_ms", delay_ms=-1)
    yield bad(move, "INVALID_FIELD", "deliver_at_ms", delay_ms=0, deliver_at_ms=-1)


def forged(field: str) -> Callable[[World], str]:
    """A live handle with one part changed and a correct checksum."""

    def make(world: World) -> str:
        known = read_recall(world.recall_handle)
        assert known is not None
        changed = 99 if field == "topic_id" else getattr(known, field) ^ 1
        return recall_text(known._replace(**{field: changed}))

    return make


def bad_schedules() -> Iterator[Case]:
    """Names, expressions, zones, and messages that cannot be sent again and again."""
    create, odd_names = "Admin/CreateSchedule", [odd for odd in ODD_NAMES if odd != "x" * 128]
    for method in ("GetSchedule", "DeleteSchedule", "PauseSchedule", "ResumeSchedule", "RunSchedule"):
        for odd in (*odd_names, "x" * 101):
            yield bad(f"Admin/{method}", "INVALID_FIELD", "name", name=odd)
        yield bad(f"Admin/{method}", "SCHEDULE_NOT_FOUND", "name", name="nobody")
    yield from out_of_range("Admin/GetSchedule", "upcoming", 101)
    yield bad(create, "INVALID_FIELD", "schedule.name", schedule__name="x" * 101)
    yield bad(create, "INVALID_FIELD", "schedule.topic", schedule__topic="a b")
    yield bad(create, "TOPIC_NOT_FOUND", "schedule.topic", schedule__topic="nobody")
    yield bad(create, "INVALID_FIELD", "schedule.time_zone", schedule__time_zone="x" * 65)
    yield bad(create, "INVALID_FIELD", "schedule.missed", schedule__missed=9)
    for cron in ("", "* * * *", "* * * * * *", "61 * * * *", "0 0 30 2 *", "nine", "* " * 200):
        yield bad(create, "INVALID_FIELD", "schedule.cron", schedule__cron=cron)
    yield bad(create, "INVALID_FIELD", "schedule.time_zone", schedule__time_zone="Mars/Olympus")
    message = {"message_id": "a", "deliver_at_ms": 1, "delay_ms": 1, "transaction": True, "priority": 1, "body": b""}
    for field, value in message.items():
        yield bad(create, "INVALID_FIELD", f"schedule.message.{field}", **{f"schedule__message__{field}": value})
    many = {f"p{number}": "x" for number in range(127)}
    yield bad(create, "INVALID_FIELD", "schedule.message.properties", schedule__message__properties=many)
    yield bad(create, "INVALID_FIELD", "schedule.message", schedule__message__body=b"x" * (256 << 10))
    yield bad(create, "ALREADY_EXISTS", "schedule.name", schedule__name=SCHEDULE, schedule__cron="@hourly")
