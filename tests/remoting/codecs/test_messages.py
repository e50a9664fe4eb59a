"""Stored messages, properties, batches, compressed bodies, ids and recall handles."""

import base64
import gzip
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_remoting.errors import BadFormat
from popmq_remoting.messages import batch, compression, offset_ids, properties, recall, stored
from popmq_remoting.messages.recall import BrokerRecallHandle
from tests.remoting.writers import MAGIC_V1, MAGIC_V2, stored_message

longs = st.integers(0, (1 << 63) - 1)
ints = st.integers(0, (1 << 31) - 1)
plain = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), max_size=12)
pairs = st.dictionaries(plain.filter(bool), plain, max_size=6)
hosts = st.ip_addresses().map(str)
names = st.text("abcXYZ019_-%|", min_size=1, max_size=100)


@given(names, st.binary(max_size=100), pairs, ints, longs, longs, hosts, hosts, st.sampled_from((MAGIC_V1, MAGIC_V2)))
def test_a_stored_message_is_read_as_it_was_stored(
    topic: str,
    body: bytes,
    own: dict[str, str],
    queue_id: int,
    queue_offset: int,
    place: int,
    born_host: str,
    store_host: str,
    magic: int,
) -> None:
    raw = stored_message(
        topic,
        body,
        properties.write(own).encode(),
        queue_id=queue_id,
        queue_offset=queue_offset,
        commit_log_offset=place,
        born_host=born_host,
        store_host=store_host,
        reconsume_times=2,
        magic=magic,
    )
    message, again = stored.read_all(raw * 2)
    assert message == again
    assert (message.topic, message.body, properties.read(message.properties)) == (topic, body, own)
    assert (message.queue_id, message.queue_offset, message.commit_log_offset) == (queue_id, queue_offset, place)
    assert (message.born_ms, message.stored_ms, message.reconsume_times) == (1_000, 2_000, 2)
    shown = [f"[{host}]:10911" if ":" in host else f"{host}:10911" for host in (born_host, store_host)]
    assert [message.born_host, message.store_host] == shown
    assert message.is_sound
    assert offset_ids.read(message.offset_id) == (message.store_host, place)


def test_a_body_that_is_not_what_was_stored_is_noticed() -> None:
    raw = stored_message(body=b"hello").replace(b"hello", b"jello")
    assert not stored.read_all(raw)[0].is_sound


def test_another_magic_ends_the_list() -> None:
    raw = stored_message() + struct.pack(">ii", 1_000, -875286124) + b"x" * 992
    assert len(stored.read_all(raw)) == 1


@given(st.binary(max_size=120), st.integers(0, 300), st.integers(0, 255))
def test_damaged_records_are_messages_or_a_typed_refusal(tail: bytes, at: int, value: int) -> None:
    raw = bytearray(stored_message(properties=b"a\x01b\x02") + tail)
    raw[at % len(raw)] = value
    try:
        stored.read_all(bytes(raw))
    except BadFormat:
        return


@pytest.mark.parametrize("cut", [1, 10, 60])
def test_a_record_that_ends_too_early_is_refused(cut: int) -> None:
    with pytest.raises(BadFormat):
        stored.read_all(stored_message()[:-cut])


def test_a_record_with_bytes_that_belong_to_no_part_is_refused() -> None:
    raw = stored_message() + b"more"
    with pytest.raises(BadFormat, match="end at byte"):
        stored.read_all(struct.pack(">i", len(raw)) + raw[4:])


@given(pairs)
def test_properties_are_read_as_they_were_written(own: dict[str, str]) -> None:
    assert properties.read(properties.write(own).encode()) == own


@pytest.mark.parametrize("own", [{"a": "\x01"}, {"a\x02": ""}, {"": "x"}, {"a": "x" * 32_766}])
def test_properties_that_the_text_cannot_hold_are_refused(own: dict[str, str]) -> None:
    with pytest.raises(BadFormat):
        properties.write(own)


def test_the_largest_properties_are_written() -> None:
    assert len(properties.write({"a": "x" * 32_764})) == properties.BYTES_MAX


def test_properties_of_other_producers_are_read_as_far_as_they_make_sense() -> None:
    assert properties.read(b"a\x01b\x02junk\x02a\x01c\x02\xff\x01d") == {"a": "c", "�": "d"}


def test_names_of_the_brokers_own_are_known() -> None:
    assert all(properties.is_own(name) for name in ("TAGS", "UNIQ_KEY", "__SHARDINGKEY", "__RMQ.TRANSIENT.x"))
    assert not properties.is_own("colour")


def test_a_batch_is_written_as_the_format_says() -> None:
    raw = batch.write([(b"one", b"a\x01b\x02"), (b"", b"")])
    first = struct.pack(">iiiii", 29, 0, 0, 0, 3) + b"one" + struct.pack(">h", 4) + b"a\x01b\x02"
    assert raw == first + struct.pack(">iiiiih", 22, 0, 0, 0, 0, 0)


@given(st.lists(st.binary(max_size=300), max_size=30))
def test_the_size_of_a_batch_is_known_before_it_is_written(bodies: list[bytes]) -> None:
    entries = [(body, "é".encode()) for body in bodies]
    assert batch.size_of(entries) == len(batch.write(entries))


def test_a_batch_that_brokers_refuse_is_refused_here() -> None:
    with pytest.raises(BadFormat):
        batch.write([(bytes(3 << 20), b""), (bytes(1 << 20), b"")])
    with pytest.raises(BadFormat):
        batch.write([(b"", b"x" * 40_000)])


@pytest.mark.parametrize("packed", [zlib.compress(b"hello" * 9), gzip.compress(b"hello" * 9)], ids=["zlib", "gzip"])
def test_bodies_by_zlib_and_gzip_are_unpacked(packed: bytes) -> None:
    assert compression.unpacked(1, packed, 45) == b"hello" * 9
    assert compression.unpacked(0, packed, 45) == packed
    with pytest.raises(BadFormat, match="more than 44"):
        compression.unpacked(1, packed, 44)
    with pytest.raises(BadFormat):
        compression.unpacked(1, packed[:-6], 45)


@pytest.mark.parametrize(("sys_flag", "method"), [(0x101, "lz4"), (0x201, "zstd"), (0x701, "method 7")])
def test_bodies_by_other_methods_are_refused_by_name(sys_flag: int, method: str) -> None:
    assert compression.method(sys_flag, b"x") == method
    with pytest.raises(BadFormat, match=method):
        compression.unpacked(sys_flag, b"x", 10)


def test_an_offset_id_names_address_and_place() -> None:
    assert offset_ids.read("7F00000100002A9F0000000000000010") == ("127.0.0.1:10911", 16)


@pytest.mark.parametrize("text", ["", "7F", "g" * 32, " F" * 16, "é" * 32])
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(BadFormat):
        offset_ids.read(text)


@given(names, names, longs, names)
def test_a_recall_handle_is_read_as_it_was_written(topic: str, broker: str, at_ms: int, id: str) -> None:
    handle = BrokerRecallHandle(topic, broker, at_ms, id)
    assert recall.read(handle.text()) == handle


@given(st.text(max_size=80))
def test_any_text_is_a_recall_handle_or_a_typed_refusal(text: str) -> None:
    try:
        recall.read(text)
    except BadFormat:
        return


@pytest.mark.parametrize("words", [b"v2 t b 1 id", b"v1 t b 1", b"v1 t b x id", b"\xff"])
def test_a_recall_handle_that_names_something_else_is_refused(words: bytes) -> None:
    with pytest.raises(BadFormat):
        recall.read(base64.urlsafe_b64encode(words).decode())
