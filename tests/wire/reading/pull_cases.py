"""Bad requests of reading by queue and offset, made from the good ones of world.py."""

from collections.abc import Iterator

from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.cases import INT64, ODD_NAMES, Case, bad, out_of_range
from tests.wire.stubs import GROUP, TOPIC
from tests.wire.world import FEED, READERS

#: Methods that read a retry topic by its name, and those that do not.
OF_RETRIES = ("Broker/Pull", "Broker/UpdateOffsets", "Broker/QueryOffsets", "Broker/QueryAssignment")
OF_TOPICS = (
    *("Broker/SendBack", "Broker/LockQueues", "Broker/UnlockQueues"),
    *("Admin/SetConsumeMode", "Admin/ResetOffsets", "Admin/CloneOffsets"),
)
#: In these an empty group means a reader without a group, or all groups.
GROUP_MAY_BE_EMPTY = ("Broker/Pull", "Broker/QueryOffsets", "Admin/ListSessions")


def pull_cases() -> Iterator[Case]:
    yield from _names()
    yield from _numbers()
    yield from _lists()
    yield from _modes()


def _names() -> Iterator[Case]:
    for name in (*OF_RETRIES[:-1], *OF_TOPICS):
        for odd in ODD_NAMES:
            if name in OF_TOPICS or "%RETRY%" not in odd:
                yield bad(name, "INVALID_FIELD", "topic", topic=odd)
        yield bad(name, "TOPIC_NOT_FOUND", "topic", topic="nobody")
    for name in OF_RETRIES:
        for odd in ("", READERS, f"+{FEED}", f"{READERS}+a b", "a b+c", "x" * 121 + "+t"):
            yield bad(name, "INVALID_FIELD", "topic", topic=f"%RETRY%{odd}")
        yield bad(name, "TOPIC_NOT_FOUND", "topic", topic=f"%RETRY%{READERS}+nobody", group=READERS)
        field = "topic" if name == "Broker/QueryAssignment" else "group"
        yield bad(name, "INVALID_FIELD", field, topic=f"%RETRY%{READERS}+{FEED}", group=GROUP)
    for name in (*OF_RETRIES[:-1], *OF_TOPICS, "Admin/ListSessions"):
        for odd in ODD_NAMES[name in GROUP_MAY_BE_EMPTY :]:
            yield bad(name, "INVALID_FIELD", "group", group=odd)
        yield bad(name, "GROUP_NOT_FOUND", "group", group="nobody")
    for odd in ODD_NAMES:
        yield bad("Admin/CloneOffsets", "INVALID_FIELD", "from_group", from_group=odd)
    yield bad("Admin/CloneOffsets", "GROUP_NOT_FOUND", "from_group", from_group="nobody")
    yield bad("Admin/CloneOffsets", "INVALID_FIELD", "from_group", from_group=GROUP)
    for name in ("Broker/LockQueues", "Broker/UnlockQueues"):
        yield bad(name, "INVALID_FIELD", "client_id", client_id="")
        yield bad(name, "INVALID_FIELD", "client_id", client_id="é" * 65)


def _numbers() -> Iterator[Case]:
    pull = "Broker/Pull"
    yield from out_of_range(pull, "offset", -1, INT64[0])
    yield from out_of_range(pull, "max_messages", 4097, 2**32 - 1)
    yield from out_of_range(pull, "max_bytes", (16 << 20) + 1, 2**32 - 1)
    yield from out_of_range(pull, "wait_ms", -1, 60_001, *INT64)
    yield from out_of_range(pull, "commit_offset", -1, 6, *INT64)
    yield bad(pull, "INVALID_FIELD", "format", format=2)
    yield bad(pull, "INVALID_FIELD", "without_body", without_body=True)
    yield bad(pull, "INVALID_FIELD", "columns", columns=["key"])
    yield bad(pull, "INVALID_FIELD", "columns", columns=["body_bytes"], format=pb.FORMAT_COLUMNS)
    for end in (-1, 1, 2, INT64[0]):
        yield bad(pull, "INVALID_FIELD", "end_offset", end_offset=end)
    yield bad(pull, "INVALID_FIELD", "wait_ms", end_offset=3, wait_ms=1)
    yield bad(pull, "INVALID_FIELD", "commit_offset", queue=1)
    yield bad(pull, "INVALID_FIELD", "commit_offset", group="")
    yield bad(pull, "FILTER_INVALID", "filter.sql92", filter=pb.Filter(sql92="a = "))
    yield from out_of_range("Broker/QueryOffsets", "timestamp_ms", -1, INT64[0])
    yield bad("Broker/QueryOffsets", "INVALID_FIELD", "timestamp_ms", topic=f"%RETRY%{READERS}+{FEED}")
    yield from out_of_range("Admin/SetConsumeMode", "mode", 2, -1)
    yield from out_of_range("Admin/SetConsumeMode", "share_number", 10_001, 2**32 - 1)


def _lists() -> Iterator[Case]:
    update, reset, lock = "Broker/UpdateOffsets", "Admin/ResetOffsets", "Broker/LockQueues"
    for name in (update, reset):
        for queue, offset in ((0, -1), (0, 6), (0, INT64[0]), (0, INT64[1]), (1, 0), (2**32 - 1, 0)):
            yield bad(name, "INVALID_FIELD", f"offsets[{queue}]", offsets={queue: offset})
        yield bad(name, "INVALID_FIELD", "offsets", offsets=dict.fromkeys(range(1025), 0))
    yield bad(update, "INVALID_FIELD", "offsets[3]", topic=f"%RETRY%{READERS}+{FEED}", offsets={3: 0})
    yield bad(reset, "INVALID_FIELD", "to", to=pb.StartPosition())
    yield bad("Broker/SendBack", "INVALID_FIELD", "messages", messages=[])
    yield bad("Broker/SendBack", "INVALID_FIELD", "messages", messages=[pb.SentBack()] * 4097)
    yield bad(lock, "INVALID_FIELD", "queues", queues=[])
    for name in (lock, "Broker/UnlockQueues"):
        yield bad(name, "INVALID_FIELD", "queues", queues=[0] * 1025)
        yield bad(name, "INVALID_FIELD", "queues[1]", queues=[0, 1])


def _modes() -> Iterator[Case]:
    yield bad("Broker/Pop", "WRONG_CONSUME_MODE", "group", topic=FEED, group=READERS)
    for name in ("Broker/Pull", "Broker/UpdateOffsets", "Broker/SendBack"):
        yield bad(name, "WRONG_CONSUME_MODE", "group", topic=TOPIC, group=GROUP)
