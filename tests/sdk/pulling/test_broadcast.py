"""Broadcast: every consumer reads every message, and keeps its own offsets, in a file or in memory."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from popmq import errors
from popmq.testing import FakeClock
from tests.sdk.conftest import TOPIC, Connect, eventually
from tests.sdk.pulling.pulls import each_queue, handle, next_of, pulling, soon, take

pytestmark = pytest.mark.usefixtures("popmq_clock")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "offsets.json"


def kept(file: Path) -> int:
    """The sum of the offsets in a file."""
    return sum(json.loads(file.read_text())["offsets"].values())


def backup_of(file: Path) -> Path:
    return Path(f"{file}.bak")


def damage(file: Path, broken: bytes | None) -> None:
    """Replaces the content of the file; None deletes it."""
    if broken is None:
        file.unlink()
    else:
        file.write_bytes(broken)


@pytest.mark.mechanism("S0.01", "S3.02")
@pytest.mark.slow
async def test_every_consumer_gets_every_message(connect: Connect, client: Any, guard: Any) -> None:
    await each_queue(client, TOPIC, 8, 5)
    for reader in (connect(), connect(), connect()):
        async with reader.broadcast_consume(TOPIC) as consumer:
            assert sorted(await take(consumer, guard, 40), key=int) == [f"{number}" for number in range(40)]


async def test_one_client_may_broadcast_to_several_consumers(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.broadcast_consume(TOPIC) as one, client.broadcast_consume(TOPIC) as other:
        assert await take(one, guard, 2) == ["a", "b"]
        assert await take(other, guard, 2) == ["a", "b"]


@pytest.mark.mechanism("S3.14")
@pytest.mark.slow
async def test_the_broker_keeps_no_state_of_a_broadcast_reader(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a"])
    async with client.broadcast_consume(TOPIC) as consumer:
        await take(consumer, guard, 1)
        assert (await client.broker.stats(TOPIC)).groups == ()


async def test_a_reader_with_a_file_goes_on_where_it_was(client: Any, guard: Any, file: Path) -> None:
    await client.send(TOPIC, ["a", "b", "c"])
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        assert await take(consumer, guard, 2) == ["a", "b"]
    async with client.broadcast_consume(TOPIC, offsets=str(file), start="latest") as consumer:
        assert await take(consumer, guard, 1) == ["c"]
    assert kept(file) == 3


async def test_a_broadcast_reader_without_a_file_begins_at_the_first_message(client: Any, guard: Any) -> None:
    await client.send(TOPIC, ["a"])
    for _ in range(2):
        async with client.broadcast_consume(TOPIC) as consumer:
            assert await take(consumer, guard, 1) == ["a"]


async def test_offsets_are_written_every_five_seconds(client: Any, guard: Any, advance: Any, file: Path) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        await take(consumer, guard, 1)
        assert kept(file) == 0
        await advance(5.0)
        assert kept(file) == 1
        assert kept(backup_of(file)) == 0


async def test_a_disk_that_takes_nothing_does_not_end_the_loop(
    client: Any, guard: Any, advance: Any, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        await take(consumer, guard, 1)
        folder = file.parent.rename(file.parent.with_name("elsewhere"))
        await advance(5.0)
        assert "the offsets cannot be written" in caplog.text
        await take(consumer, guard, 1)
        folder.rename(file.parent)
        await advance(1.0)
        assert kept(file) == 2


@pytest.mark.mechanism("S2.46")
@pytest.mark.parametrize("broken", [b"", b'{"topic": "orde', b"[]", b'{"topic": "orders", "offsets": {"0": -1}}', None])
async def test_the_file_before_is_read_when_the_main_one_is_broken(
    client: Any, guard: Any, advance: Any, file: Path, broken: bytes | None
) -> None:
    await client.send(TOPIC, ["a", "b"])
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        await take(consumer, guard, 1)
        await advance(5.0)
        await take(consumer, guard, 1)
    damage(file, broken)
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        assert await take(consumer, guard, 1) == ["b"]


async def test_a_broadcast_reader_whose_files_are_both_broken_does_not_start_over(client: Any, file: Path) -> None:
    damage(file, b"")
    damage(backup_of(file), b"{")
    with pytest.raises(errors.PopMQError, match="delete these files"):
        await next_of(client.broadcast_consume(TOPIC, offsets=file))


async def test_the_file_of_another_topic_is_refused(client: Any, guard: Any, file: Path) -> None:
    await client.topics.create("prices")
    await client.send("prices", "x")
    async with client.broadcast_consume("prices", offsets=file) as consumer:
        await take(consumer, guard, 1)
    with pytest.raises(errors.PopMQError, match="of topic 'prices', not of 'orders'"):
        await next_of(client.broadcast_consume(TOPIC, offsets=file))


async def test_a_new_reader_may_begin_at_the_end_or_at_a_time(
    client: Any, guard: Any, advance: Any, popmq_clock: FakeClock
) -> None:
    await client.send(TOPIC, ["old"])
    await advance(10.0)
    since = datetime.fromtimestamp(popmq_clock.now(), UTC)
    async with client.broadcast_consume(TOPIC, start="latest") as latest:
        waiting = soon(latest)
        await eventually(lambda: pulling(latest))
        await client.send(TOPIC, ["new"])
        delivery = await handle(guard, await waiting)
        assert delivery.text() == "new"
    async with client.broadcast_consume(TOPIC, start=since) as consumer:
        assert await take(consumer, guard, 1) == ["new"]


@pytest.mark.slow
async def test_a_failed_message_is_logged_and_passed_over(
    client: Any, guard: Any, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, ["bad", "good"])
    async with client.broadcast_consume(TOPIC, offsets=file) as consumer:
        await take(consumer, guard, 2, fails=["bad"])
    assert "the handler of message" in caplog.text
    assert kept(file) == 2


async def test_a_message_may_be_put_off(client: Any, guard: Any, advance: Any) -> None:
    await client.send(TOPIC, ["later", "now"])
    async with client.broadcast_consume(TOPIC) as consumer:
        (await next_of(consumer)).release(30.0)
        assert await take(consumer, guard, 1) == ["now"]
        await advance(30.0)
        again = await handle(guard, await next_of(consumer))
        assert (again.text(), again.attempt) == ("later", 2)


async def test_queues_that_a_topic_gets_later_are_read_from_their_first_message(
    client: Any, guard: Any, advance: Any
) -> None:
    async with client.broadcast_consume(TOPIC, start="latest") as consumer:
        waiting = soon(consumer)
        await eventually(lambda: pulling(consumer))
        await client.topics.update(TOPIC, queues=9)
        for _ in range(9):
            await client.send(TOPIC, "x")
        await handle(guard, await waiting)
        await take(consumer, guard, 7)
        await advance(20.0)
        delivery = await handle(guard, await next_of(consumer))
        assert (delivery.queue, delivery.offset) == (8, 0)


@pytest.mark.slow
async def test_a_filter_passes_over_messages_that_do_not_match(client: Any, guard: Any, file: Path) -> None:
    await client.send(TOPIC, ["x"])
    seen = []
    async for delivery in client.broadcast_consume(TOPIC, sql="region = 'eu'", offsets=file, until_idle=0.01):
        async with guard(delivery):
            seen.append(delivery)
    assert seen == []
    assert kept(file) == 1
