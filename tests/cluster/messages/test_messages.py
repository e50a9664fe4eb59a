"""A popmq.v1.Message and what RocketMQ stores: both ways, and what RocketMQ cannot hold."""

import gzip
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.messages import properties
from popmq_remoting.messages.stored import StoredMessage, read_all
from popmq_remoting.requests import popping, pulling, sending
from popmq_server.cluster.messages import own
from popmq_server.cluster.messages.dead_letters import Death, dead_letter
from popmq_server.cluster.messages.from_broker import message_bytes
from popmq_server.cluster.messages.to_broker import DELAY_MS_MAX, BrokerMessage, SendLimits, to_broker
from popmq_server.errors import Refused
from popmq_server.protocols import entries
from tests.remoting.codecs.recordings import RELEASES, recorded
from tests.remoting.writers import stored_message

NOW_MS = 1_800_000_000_000
LIMITS = SendLimits("shop%orders", NOW_MS)
#: Bodies with their encoding: as other readers expect them, and otherwise.
BODIES = {
    b"plain": pb.ENCODING_UNSPECIFIED,
    gzip.compress(b"gzip", mtime=0): pb.ENCODING_GZIP,
    zlib.compress(b"zlib"): pb.ENCODING_ZLIB,
    b"\x28\xb5\x2f\xfdframe": pb.ENCODING_ZSTD,
    b"\x04\x22\x4d\x18frame": pb.ENCODING_LZ4,
    b"no frame": pb.ENCODING_LZ4,
    b"no gzip": pb.ENCODING_GZIP,
}

words = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1, max_size=30)
keys = words.filter(lambda key: " " not in key)
tags = st.text("abcXYZ019_-ü", max_size=20)
names = words.filter(own.is_of_the_user)


@st.composite
def messages(draw: st.DrawFn) -> pb.Message:
    """Messages that the contract allows, but of bytes and names that RocketMQ cannot hold."""
    body = draw(st.one_of(st.sampled_from([*BODIES]), st.binary(min_size=1, max_size=50)))
    message = pb.Message(
        message_id=draw(words),
        body=body,
        tag=draw(tags),
        keys=draw(st.lists(keys, max_size=3)),
        properties=draw(st.dictionaries(names, st.one_of(words, st.just("")), max_size=3)),
        message_group=draw(st.one_of(st.just(""), words.filter(lambda text: len(text.encode()) <= 64))),
        priority=draw(st.integers(0, 9)),
        encoding=BODIES.get(body, pb.ENCODING_UNSPECIFIED),
        born_ms=draw(st.integers(1, 4_000_000_000_000)),
        born_host=draw(st.one_of(st.just(""), words)),
    )
    match draw(st.sampled_from(("", "at", "in", "half"))):
        case "at":
            message.deliver_at_ms = draw(st.integers(1, NOW_MS + DELAY_MS_MAX))
        case "in":
            message.delay_ms = draw(st.integers(1, DELAY_MS_MAX))
        case "half":
            message.transaction = True
            message.check_after_ms = draw(st.sampled_from((0, 1_000, 7_000, 3_600_000)))
    if draw(st.booleans()):
        message.trace_context.traceparent = draw(words)
        message.trace_context.tracestate = draw(st.one_of(st.just(""), words))
    return message


def sent(message: pb.Message) -> BrokerMessage:
    """The message as it goes to a broker."""
    return to_broker(entries.new_message(message.SerializeToString(), message, ("", 0, 0)), LIMITS)


def stored(message: BrokerMessage, topic: str = LIMITS.topic, **more: Any) -> StoredMessage:
    """What a broker stores of it."""
    raw = stored_message(
        topic, message.body, message.text.encode(), sys_flag=message.sys_flag, born_ms=message.born_ms, **more
    )
    return read_all(raw)[0]


def delivered(message: StoredMessage) -> pb.Message:
    return pb.Message.FromString(message_bytes(message, properties.read(message.properties)))


@given(messages())
def test_a_message_is_delivered_as_it_was_sent(message: pb.Message) -> None:
    assert delivered(stored(sent(message))) == message


@given(messages())
def test_what_brokers_add_is_not_shown(message: pb.Message) -> None:
    broker_message = sent(message)
    added = {"MSG_REGION": "r", "POP_CK": "1 2", "1ST_POP_TIME": "5", "REAL_QID": "0", "__RMQ.TRANSIENT.a": "b"}
    text = properties.write(broker_message.properties | added)
    assert delivered(stored(broker_message._replace(text=text))) == message


def test_an_own_encoding_of_python_is_the_one_that_generated_code_writes() -> None:
    """Field by field in the order of their numbers, so that equal messages have equal bytes."""
    plain = pb.Message(message_id="id", body=b"b" * 300, tag="t", born_ms=5)
    full = pb.Message(message_id="id", body=b"b" * 300, tag="t", keys=["k"], properties={"a": "b"}, born_ms=5)
    for message in (plain, full):
        raw = stored(sent(message))
        assert message_bytes(raw, properties.read(raw.properties)) == message.SerializeToString()


@pytest.mark.parametrize("name", sorted(properties.OWN_NAMES))
def test_each_property_of_rocketmq_says_the_same_of_a_plain_message_and_of_any_other(name: str) -> None:
    """A message with a property of the user's takes the longer way."""
    found = {"UNIQ_KEY": "id", "TAGS": "t"} | {name: "7"}
    raw = stored(BrokerMessage(b"b", found, properties.write(found), 0, 5, is_plain=True))
    plain = pb.Message.FromString(message_bytes(raw, found))
    other = pb.Message.FromString(message_bytes(raw, found | {"user": "a"}))
    assert other.properties.pop("user") == "a"
    assert plain == other


def test_each_field_has_its_property() -> None:
    message = pb.Message(
        message_id="id-1", body=b"b", tag="red", keys=["a", "b"], message_group="m", delay_ms=4_000, priority=3,
        properties={"colour": "grün"}, born_ms=7, born_host="host", trace_context=pb.TraceContext(traceparent="p"),
    )  # fmt: skip
    found = sent(message)
    assert found.properties == {
        "UNIQ_KEY": "id-1",
        "TAGS": "red",
        "KEYS": "a b",
        "colour": "grün",
        "__BORNHOST": "host",
        "TRACE_CONTEXT": "p",
        "__SHARDINGKEY": "m",
        "_SYS_MSG_PRIORITY_": "3",
        "TIMER_DELAY_MS": "4000",
    }
    assert (found.born_ms, found.sys_flag, found.is_plain) == (7, 0, False)
    assert properties.read(found.text.encode()) == found.properties


@pytest.mark.parametrize(("after_ms", "seconds"), [(0, "6"), (1_000, "1"), (1_001, "2")])
def test_a_half_message_always_names_the_time_until_its_first_check(after_ms: int, seconds: str) -> None:
    found = sent(pb.Message(message_id="id", body=b"b", transaction=True, check_after_ms=after_ms))
    assert found.properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == seconds
    assert (found.properties["PGROUP"], found.properties["TRAN_MSG"], found.sys_flag) == ("shop%orders", "true", 4)


def test_a_committed_message_is_still_a_transaction_s() -> None:
    half = sent(pb.Message(message_id="id", body=b"b", transaction=True))
    committed = {name: value for name, value in half.properties.items() if name != "TRAN_MSG"}
    assert delivered(stored(half._replace(text=properties.write(committed), sys_flag=8))).transaction


def test_a_message_without_a_time_was_born_when_the_gateway_got_it() -> None:
    assert sent(pb.Message(message_id="id", body=b"b")).born_ms == NOW_MS


@pytest.mark.parametrize(
    ("body", "encoding", "flag"),
    [
        (gzip.compress(b"a", mtime=0), 1, 1),
        (zlib.compress(b"a"), 4, 0x301),
        (b"\x28\xb5\x2f\xfd", 2, 0x201),
        (b"no", 4, 0),
    ],
)
def test_a_compressed_body_is_marked_where_other_readers_can_unpack_it(body: bytes, encoding: Any, flag: int) -> None:
    found = sent(pb.Message(message_id="id", body=body, encoding=encoding))
    assert (found.sys_flag, found.properties.get(own.ENCODING)) == (flag, None if flag else "4")
    assert found.is_plain == (not flag)


def refusal(**message: Any) -> Refused:
    with pytest.raises(Refused) as refused:
        sent(pb.Message(**{"message_id": "id", "body": b"b"} | message))
    assert refused.value.code == "INVALID_FIELD"
    assert refused.value.action
    return refused.value


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("keys[1]", {"keys": ["a", "two words"]}),
        ("keys", {"keys": ["a\x01"]}),
        ("message_id", {"message_id": "a\x02"}),
        ("message_group", {"message_group": "a\x01b"}),
        ("born_host", {"born_host": "a\x01b"}),
        ("trace_context", {"trace_context": pb.TraceContext(tracestate="\x02")}),
        ("properties", {"properties": {"a\x01": "b"}}),
        ("properties", {"properties": {"a": "\x02"}}),
        ("properties", {"properties": {"KEYS": "a"}}),
        ("properties", {"properties": {"__RMQ.TRANSIENT.x": "a"}}),
        ("properties", {"properties": {"__popmq_born": "1"}}),
        ("properties", {"properties": {"a": "x" * 33 * 1024}}),
        ("properties", {"properties": {"a": "ü" * 16 * 1024}}),
        ("deliver_at_ms", {"deliver_at_ms": NOW_MS + DELAY_MS_MAX + 1}),
        ("delay_ms", {"delay_ms": DELAY_MS_MAX + 1}),
    ],
)
def test_what_rocketmq_cannot_hold_is_refused_at_its_field(field: str, message: dict[str, Any]) -> None:
    assert refusal(**message).field == field


def test_properties_leave_brokers_room_to_deliver_the_message_again() -> None:
    """A pop that fails adds its handle and the names of topics to the properties; 32,767 bytes hold both."""
    whole = len(sent(pb.Message(message_id="id", body=b"b", properties={"a": ""})).text)
    largest = sent(pb.Message(message_id="id", body=b"b", properties={"a": "x" * (own.PROPERTIES_BYTES_MAX - whole)}))
    assert len(largest.text) == own.PROPERTIES_BYTES_MAX == 31_743
    refusal(properties={"a": "x" * (own.PROPERTIES_BYTES_MAX - whole + 1)})


@pytest.mark.parametrize("release", RELEASES)
def test_recorded_messages_of_brokers_are_read_with_their_own_fields_only(release: str) -> None:
    (tagged, *_) = popping.popped(recorded(release)["200050 answered 0"].response(), "a").rows
    message = pb.Message.FromString(message_bytes(tagged.message, tagged.properties))
    assert (message.tag, dict(message.properties), [*message.keys]) == ("red", {"colour": "grün"}, [])
    assert message.message_id == tagged.properties["UNIQ_KEY"]
    assert message.born_ms == tagged.message.born_ms
    for name, read in (("11", lambda answer: pulling.pulled(answer).messages), ("200052", popping.messages)):
        for each in read(recorded(release)[f"{name} answered 0"].response()):
            shown = delivered(each)
            assert (shown.body, dict(shown.properties), shown.transaction) == (each.body, {}, False)
            assert (not shown.keys) == (name == "11")


@pytest.mark.parametrize("release", RELEASES)
def test_a_recorded_question_about_a_half_message_shows_the_message_of_its_producer(release: str) -> None:
    shown = delivered(sending.check(recorded(release)["asked 39"].request()).message)
    assert (shown.transaction, shown.body, dict(shown.properties)) == (True, b"half", {})


def test_a_message_of_another_program_has_an_id_and_only_sound_numbers() -> None:
    raw = read_all(stored_message(properties=b"TIMER_DELIVER_MS\x01soon\x02_SYS_MSG_PRIORITY_\x01-4\x02", born_ms=-1))[
        0
    ]
    message = delivered(raw)
    assert (message.message_id, message.deliver_at_ms, message.priority, message.born_ms) == (raw.offset_id, 0, 0, 0)
    delay = read_all(stored_message(properties=b"TIMER_DELAY_SEC\x0130\x02__LITE_TOPIC\x01l\x02"))[0]
    assert (delivered(delay).delay_ms, delivered(delay).lite_topic) == (30_000, "l")


def death(**changes: Any) -> Death:
    return Death("shop%orders", 3, 42, 17, 5_000, "client-1", "no such order", 9_000)._replace(**changes)


@given(messages())
def test_a_dead_letter_is_the_message_with_its_origin_and_reason(message: pb.Message) -> None:
    message.ClearField("deliver_at_ms")
    message.ClearField("delay_ms")
    message.ClearField("transaction")
    message.ClearField("check_after_ms")
    before = stored(sent(message), reconsume_times=16)
    buried = dead_letter(before, properties.read(before.properties) | {"POP_CK": "1 2"}, death())
    assert "POP_CK" not in buried.properties
    shown = delivered(stored(buried, "%DLQ%shop%bill"))
    assert shown.dead_letter == pb.DeadLetter(
        topic="shop.orders", queue=3, offset=42, attempts=17, first_pop_ms=5_000, last_client="client-1",
        reason="no such order", dead_ms=9_000,
    )  # fmt: skip
    shown.ClearField("dead_letter")
    assert shown == message


def test_a_reason_is_cut_where_the_message_leaves_no_room_and_has_no_separators() -> None:
    full = stored(sent(pb.Message(message_id="id", body=b"b", properties={"a": "x" * 31_000})))
    buried = dead_letter(full, properties.read(full.properties), death(reason="\x01ü" * 2_000))
    assert 31_743 < len(buried.text.encode()) <= 32_767
    reason = delivered(stored(buried, "%DLQ%g")).dead_letter.reason
    assert 0 < len(reason) < 2_000
    assert {*reason} == {" ", "ü"}


def test_a_dead_letter_of_a_broker_tells_what_the_broker_knows() -> None:
    raw = read_all(stored_message("%DLQ%g", properties=b"DLQ_ORIGIN_TOPIC\x01shop%orders\x02", reconsume_times=16))[0]
    assert delivered(raw).dead_letter == pb.DeadLetter(topic="shop.orders", attempts=16, dead_ms=2_000)
