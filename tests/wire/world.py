"""A broker that holds something of every kind, and a good request for each method, from which bad ones are made."""

from pathlib import Path
from typing import Any, NamedTuple

from google.protobuf.message import Message

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.values.handles import make_handle, read_handle
from tests.wire.rocketmq.v2 import CLIENT, Obliging
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, handles

OWNER = "query"
OTHER_TOPIC, OTHER_GROUP, LATER, LEDGER = "flights", "audit", "later", "ledger"
FEED, READERS = "feed", "readers"
SINK, STAGE = "job", "stage"
SCHEDULE = "nightly"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"


class World(NamedTuple):
    """Handles by kind; the generation of OWNER, whose epoch 1 is acked.

    Topic LATER has one delayed message, and one half message: `recall_handle` and `transaction_id` name them.
    """

    stubs: Stubs
    folder: Path
    clock: FakeClock
    generation: int
    live: str
    bad_handles: dict[str, tuple[str, str]]  # what it is → (handle, code)
    recall_handle: str = ""
    transaction_id: str = ""
    checkpoint_id: int = 0  # of a lease of GROUP


def build(stubs: Stubs, folder: Path, clock: FakeClock, writer: Stubs | None = None) -> World:
    """`writer`: the client whose access key SINK belongs to, if it is another one."""
    Obliging(stubs.channel)
    stubs.create_topic(queues=1)
    stubs.create_topic(OTHER_TOPIC, queues=8)
    stubs.create_group()
    stubs.create_group(OTHER_GROUP, max_attempts=1)
    stubs.send(*(str(number).encode() for number in range(50)))
    lapsed = handles(stubs.pop(max_messages=1, invisible_ms=1_000))[0]
    clock.advance(1_000)
    acked, released, rejected = handles(stubs.pop(max_messages=3, invisible_ms=43_200_000))
    stubs.ack(acked)
    stubs.change(released, release=pb.Release(delay_ms=3_600_000, reason="later"))
    stubs.change(rejected, reject=pb.Reject(reason="broken"))
    live = handles(stubs.pop(max_messages=1, invisible_ms=43_200_000))[0]
    foreign = handles(stubs.pop(group=OTHER_GROUP, max_messages=1, invisible_ms=43_200_000))[0]
    stubs.attach(OWNER)
    generation = stubs.attach(OWNER, lease_ms=43_200_000).generation
    for epoch in (1, 2):
        token = pb.Token(owner=OWNER, generation=generation, epoch=epoch)
        stubs.pop(max_messages=3, token=token)
    stubs.broker.AckUpTo(pb.AckUpToRequest(group=GROUP, owner=OWNER, generation=generation, epoch=1), timeout=CALL_S)
    ck_id, member, nonce = read_handle(live)
    bad = {
        "empty": ("", "INVALID_HANDLE"),
        "a word": ("handle", "INVALID_HANDLE"),
        "of the right length": ("A" * 28, "INVALID_HANDLE"),
        "a long one": ("A" * 100_000, "INVALID_HANDLE"),
        "not ascii": ("é" * 28, "INVALID_HANDLE"),
        "with a line break": (live[:-1] + "\n", "INVALID_HANDLE"),
        "damaged": (live[:9] + LETTERS[LETTERS.index(live[9]) - 1] + live[10:], "INVALID_HANDLE"),
        "forged nonce": (make_handle(ck_id, member, nonce ^ 1), "INVALID_HANDLE"),
        "forged member": (make_handle(ck_id, member + 1, nonce), "INVALID_HANDLE"),
        "forged lease": (make_handle(2**64 - 1, 0, nonce), "INVALID_HANDLE"),
        "of another group": (foreign, "INVALID_HANDLE"),
        "lapsed": (lapsed, "HANDLE_LAPSED"),
        "acked": (acked, "HANDLE_LAPSED"),
        "released": (released, "HANDLE_LAPSED"),
        "rejected": (rejected, "HANDLE_LAPSED"),
    }
    _stop(stubs)
    _pull(stubs)
    _stage(writer or stubs)
    schedule = pb.Schedule(name=SCHEDULE, cron="@daily", topic=TOPIC, message=pb.Message(body=b"x"))
    stubs.admin.CreateSchedule(pb.CreateScheduleRequest(schedule=schedule), timeout=CALL_S)
    return World(stubs, folder, clock, generation, live, bad, *_waiting(stubs), _in_backoff(stubs))


def _in_backoff(stubs: Stubs) -> int:
    """The lease of the message that was released with a delay."""
    found = stubs.admin.ListLeases(pb.ListLeasesRequest(group=GROUP, topic=TOPIC), timeout=CALL_S).leases
    return next(int(lease.checkpoint_id) for lease in found if lease.kind == "backoff")


def _stop(stubs: Stubs) -> None:
    """Message group "a" of the FIFO topic LEDGER is stopped for GROUP."""
    stubs.create_topic(LEDGER, type=pb.FIFO)
    stubs.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP, max_attempts=1, stop_on_failure=True)))
    message = pb.Message(body=b"x", message_group="a")
    stubs.broker.Send(pb.SendRequest(topic=LEDGER, messages=[message]), timeout=CALL_S)
    stubs.change(handles(stubs.pop(LEDGER))[0], release=pb.Release(delay_ms=0))
    stubs.admin.UpdateGroup(pb.UpdateGroupRequest(group=pb.Group(name=GROUP, results_keep_ms=86_400_000)))


def _pull(stubs: Stubs) -> None:
    """READERS pull the topic FEED: two of five messages are committed, the first has been sent back."""
    stubs.create_topic(FEED, queues=1)
    stubs.create_group(READERS)
    stubs.admin.SetConsumeMode(pb.SetConsumeModeRequest(topic=FEED, group=READERS, mode=pb.PULL), timeout=CALL_S)
    stubs.send(*(f"feed {number}".encode() for number in range(5)), topic=FEED)
    stubs.broker.UpdateOffsets(pb.UpdateOffsetsRequest(topic=FEED, group=READERS, offsets={0: 2}), timeout=CALL_S)
    back = pb.SendBackRequest(topic=FEED, group=READERS, messages=[pb.SentBack(delay_ms=0)])
    stubs.broker.SendBack(back, timeout=CALL_S)


def _stage(stubs: Stubs) -> None:
    """SINK has staged one message for batch 1, and committed batch 0, which is empty."""
    request = pb.StageRequest(topic=TOPIC, messages=[pb.Message(body=b"x")], sink=SINK, batch=1, stage_id=STAGE)
    stubs.broker.Stage(request, timeout=CALL_S)
    stubs.broker.CommitBatch(pb.CommitBatchRequest(sink=SINK), timeout=CALL_S)


def _waiting(stubs: Stubs) -> tuple[str, str]:
    """The recall handle of a delayed message, and the transaction id of a half message."""
    stubs.create_topic(LATER, type=pb.TRANSACTION)
    messages = [pb.Message(body=b"x", delay_ms=86_400_000), pb.Message(body=b"x", transaction=True)]
    delayed, half = stubs.broker.Send(pb.SendRequest(topic=LATER, messages=messages), timeout=CALL_S).results
    return delayed.recall_handle, half.transaction_id


def token(world: World, **fields: Any) -> pb.Token:
    return pb.Token(**{"owner": OWNER, "generation": world.generation, "epoch": 3, **fields})


def _single_messages() -> dict[str, Message]:
    return {
        "Admin/LookUp": pb.LookUpRequest(topic=TOPIC, message_id="7"),
        "Admin/Why": pb.WhyRequest(message_id="7"),
        "Admin/RedriveDeadLetters": pb.RedriveDeadLettersRequest(group=GROUP),
        "Admin/DiscardDeadLetters": pb.DiscardDeadLettersRequest(group=GROUP),
        "Admin/ListDeadLetterReasons": pb.ListDeadLetterReasonsRequest(group=GROUP),
    }


def _endings(world: World) -> dict[str, Message]:
    change = pb.InvisibleTimeChange(handle=world.live, extend=pb.Extend(invisible_ms=43_200_000))
    return {
        "Broker/Ack": pb.AckRequest(group=GROUP, handles=[world.live]),
        "Broker/ChangeInvisibleTime": pb.ChangeInvisibleTimeRequest(group=GROUP, changes=[change]),
        "Broker/Settle": pb.SettleRequest(group=GROUP, handles=[world.live]),
        "Broker/GetResults": pb.GetResultsRequest(group=GROUP, message_ids=["7"]),
        "Broker/StoreResults": pb.StoreResultsRequest(group=GROUP, results=[pb.MessageResult(message_id="7")]),
        "Broker/ForgetResults": pb.ForgetResultsRequest(group=GROUP, message_ids=["7"]),
    }


def good_requests(world: World) -> dict[str, Message]:
    """One request for each method that succeeds in the world as it is built."""
    owner = {"group": GROUP, "owner": OWNER, "generation": world.generation}
    return {
        "Broker/Send": pb.SendRequest(topic=TOPIC, messages=[pb.Message(message_id="new", body=b"new")]),
        "Broker/Pop": pb.PopRequest(topic=TOPIC, group=GROUP, max_messages=1),
        **_endings(world),
        "Broker/QueryAssignment": pb.QueryAssignmentRequest(topic=TOPIC, group=GROUP, client_id="c"),
        "Broker/Heartbeat": pb.HeartbeatRequest(client_id="c", group=GROUP, topics=[TOPIC]),
        "Broker/AttachOwner": pb.AttachOwnerRequest(group=GROUP, owner="new", lease_ms=60_000, topic=TOPIC),
        "Broker/RenewOwner": pb.RenewOwnerRequest(**owner, lease_ms=60_000),  # type: ignore[arg-type]
        "Broker/AckUpTo": pb.AckUpToRequest(**owner, epoch=2),  # type: ignore[arg-type]
        "Broker/ReleaseOwner": pb.ReleaseOwnerRequest(**owner),  # type: ignore[arg-type]
        "Broker/WaitAvailable": pb.WaitAvailableRequest(topic=TOPIC, group=GROUP),
        "Broker/Peek": pb.PeekRequest(topic=TOPIC, group=GROUP),
        "Broker/Pull": pb.PullRequest(topic=FEED, group=READERS, offset=2, commit_offset=2),
        "Broker/UpdateOffsets": pb.UpdateOffsetsRequest(topic=FEED, group=READERS, offsets={0: 3}),
        "Broker/QueryOffsets": pb.QueryOffsetsRequest(topic=FEED, group=READERS, timestamp_ms=1),
        "Broker/SendBack": pb.SendBackRequest(topic=FEED, group=READERS, messages=[pb.SentBack(offset=1)]),
        "Broker/LockQueues": pb.LockQueuesRequest(topic=FEED, group=READERS, client_id="c", queues=[0]),
        "Broker/UnlockQueues": pb.UnlockQueuesRequest(topic=FEED, group=READERS, client_id="c"),
        "Broker/Stage": pb.StageRequest(
            topic=TOPIC, messages=[pb.Message(message_id="staged", body=b"x")], sink=SINK, batch=1, stage_id="new"
        ),
        "Broker/CommitBatch": pb.CommitBatchRequest(
            sink=SINK, batch=1, stages=[pb.StageName(stage_id=STAGE, topic=TOPIC, messages=1)]
        ),
        "Broker/DropStages": pb.DropStagesRequest(sink=SINK, stages=[pb.StageName(stage_id=STAGE, topic=TOPIC)]),
        **_later(world),
        "Broker/EndTransaction": pb.EndTransactionRequest(
            ends=[pb.TransactionEnd(transaction_id=world.transaction_id, resolution=pb.COMMIT)]
        ),
        **_single_messages(),
        "Admin/ListDelayed": pb.ListDelayedRequest(topic=LATER),
        "Admin/ListTransactions": pb.ListTransactionsRequest(topic=LATER),
        **_schedule_requests(),
        "Admin/CreateTopic": pb.CreateTopicRequest(topic=pb.Topic(name="new")),
        "Admin/UpdateTopic": pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, queues=2)),
        "Admin/GetTopic": pb.GetTopicRequest(name=TOPIC),
        "Admin/ListTopics": pb.ListTopicsRequest(),
        "Admin/DeleteTopic": pb.DeleteTopicRequest(name=OTHER_TOPIC),
        "Admin/PurgeTopic": pb.PurgeTopicRequest(name=OTHER_TOPIC),
        "Admin/CreateGroup": pb.CreateGroupRequest(group=pb.Group(name="new")),
        "Admin/UpdateGroup": pb.UpdateGroupRequest(
            group=pb.Group(name=GROUP, max_attempts=3, results_keep_ms=86_400_000)
        ),
        "Admin/GetGroup": pb.GetGroupRequest(name=GROUP),
        "Admin/ListGroups": pb.ListGroupsRequest(),
        "Admin/GetInfo": pb.GetInfoRequest(),
        "Admin/ListBrokers": pb.ListBrokersRequest(),
        "Admin/DeleteGroup": pb.DeleteGroupRequest(name=OTHER_GROUP),
        "Admin/GetStats": pb.GetStatsRequest(topic=TOPIC, group=GROUP),
        "Admin/GetHistory": pb.GetHistoryRequest(topic=TOPIC, group=GROUP),
        "Admin/ListMessageGroups": pb.ListMessageGroupsRequest(topic=LEDGER, group=GROUP),
        "Admin/ResumeMessageGroup": pb.ResumeMessageGroupRequest(topic=LEDGER, group=GROUP, message_group="a"),
        "Admin/ListSessions": pb.ListSessionsRequest(group=GROUP),
        "Admin/GetClientStack": pb.GetClientStackRequest(client_id=CLIENT),
        "Admin/VerifyMessage": pb.VerifyMessageRequest(client_id=CLIENT, topic=FEED, queue=0, offset=3),
        "Admin/SetConsumeMode": pb.SetConsumeModeRequest(topic=FEED, group=READERS, mode=pb.POP),
        "Admin/ResetOffsets": pb.ResetOffsetsRequest(topic=FEED, group=READERS, offsets={0: 1}),
        "Admin/CloneOffsets": pb.CloneOffsetsRequest(topic=FEED, from_group=READERS, group=OTHER_GROUP),
        "Admin/SetFilter": pb.SetFilterRequest(topic=TOPIC, group=GROUP, filter=pb.Filter(sql92="a > 1")),
        "Admin/Browse": pb.BrowseRequest(topic=TOPIC),
        "Admin/ListLeases": pb.ListLeasesRequest(group=GROUP, topic=TOPIC),
        "Admin/EndLease": pb.EndLeaseRequest(group=GROUP, checkpoint_id=world.checkpoint_id),
        "Admin/ListAccessKeys": pb.ListAccessKeysRequest(),
        "Admin/ListOwners": pb.ListOwnersRequest(group=GROUP),
        "Admin/SetMaxSize": pb.SetMaxSizeRequest(map_bytes=1 << 31),
        "Admin/Backup": pb.BackupRequest(bytes_per_s=1 << 30),
    }


def _later(world: World) -> dict[str, Message]:
    """Requests about a delayed message."""
    topic, handle = LATER, world.recall_handle
    return {
        "Broker/Recall": pb.RecallRequest(topic=topic, recall_handle=handle),
        "Broker/Reschedule": pb.RescheduleRequest(topic=topic, recall_handle=handle, delay_ms=3_600_000),
    }


def _schedule_requests() -> dict[str, Message]:
    return {
        "Admin/CreateSchedule": pb.CreateScheduleRequest(
            schedule=pb.Schedule(name="new", cron="@daily", topic=TOPIC, message=pb.Message(body=b"x"))
        ),
        "Admin/GetSchedule": pb.GetScheduleRequest(name=SCHEDULE, upcoming=3),
        "Admin/ListSchedules": pb.ListSchedulesRequest(),
        "Admin/DeleteSchedule": pb.DeleteScheduleRequest(name=SCHEDULE),
        "Admin/PauseSchedule": pb.PauseScheduleRequest(name=SCHEDULE),
        "Admin/ResumeSchedule": pb.ResumeScheduleRequest(name=SCHEDULE),
        "Admin/RunSchedule": pb.RunScheduleRequest(name=SCHEDULE),
    }


#: Their answer is a stream: here a list of responses.
STREAMED = {"Admin/Backup"}


def method(stubs: Stubs, name: str) -> Any:
    """The stub of "Broker/Send"."""
    service, _, verb = name.partition("/")
    stub = getattr(stubs.broker if service == "Broker" else stubs.admin, verb)
    if name in STREAMED:
        return lambda *request, **more: list(stub(*request, **more))
    return stub


def with_fields(request: Message, **changes: Any) -> Message:
    """A copy with fields set; `group__max_attempts` is the field of a field."""
    made = type(request)()
    made.CopyFrom(request)
    for path, value in changes.items():
        place, (*way, last) = made, path.split("__")
        for step in way:
            place = getattr(place, step)
        if isinstance(value, Message):
            getattr(place, last).CopyFrom(value)
        elif isinstance(value, list):
            place.ClearField(last)
            getattr(place, last).extend(value)
        elif isinstance(value, dict):
            getattr(place, last).update(value)
        else:
            setattr(place, last, value)
    return made


#: The methods of the contract that are requests with answers, as "Broker/Send".
METHODS = sorted(good_requests(World(None, None, None, 1, "", {})))  # type: ignore[arg-type]
