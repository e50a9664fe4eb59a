"""Transactions: visible together or never, and asked about when their producer died."""

import asyncio
import signal
from collections.abc import Callable, Sized
from typing import Any

import pytest

import popmq
from popmq import errors
from popmq.testing import Broker, FakeClock
from tests.sdk.conftest import GROUP, Connect, eventually, told
from tests.sdk.programs import python

TOPIC = "payments"


@pytest.fixture(autouse=True)
def _by_the_fake_clock(popmq_clock: FakeClock) -> None:
    """Checks are due when the test says so."""


@pytest.fixture
async def client(connect: Connect) -> Any:
    """A client with a topic that takes half messages, and a group."""
    client = connect()
    await client.topics.create(TOPIC, type="TRANSACTION")
    await client.groups.create(GROUP)
    return client


async def bodies(client: Any, group: str = GROUP) -> list[str]:
    return sorted(delivery.text() for delivery in await client.pop(TOPIC, group, max_messages=100))


@pytest.fixture
def until_ended(client: Any, advance: Any) -> Callable[[Sized], Any]:
    """Moves the time on, half a minute at a time, until no half message is left; `asked` grows with each question."""

    async def move(asked: Sized) -> None:
        while (half := await client.transactions.list()).total:
            if sum(message.checks for message in half.messages) <= len(asked):
                await advance(30.0)

    return move


async def test_messages_of_a_transaction_block_are_visible_after_its_end(client: Any) -> None:
    async with client.transaction(TOPIC) as transaction:
        first = await transaction.send(popmq.Message("paid", key="k"))
        two, three = await transaction.send(["two", b"three"])
        assert (first.queue, first.offset, bool(first.transaction_id)) == (-1, -1, True)
        assert len({first.transaction_id, two.transaction_id, three.transaction_id}) == 3
        assert await bodies(client) == []
        listed = await client.transactions.list(TOPIC)
        assert listed.total == 3
        assert [(half.preview.keys, half.preview.text()) for half in listed.messages] == [
            (("k",), "paid"),
            ((), "two"),
            ((), "three"),
        ]
    assert [receipt.offset >= 0 for receipt in transaction.receipts] == [True] * 3
    assert transaction.receipts[0].message_id == first.message_id
    assert await bodies(client) == ["paid", "three", "two"]
    assert (await client.transactions.list()).messages == ()


async def test_an_exception_rolls_back_and_goes_on(client: Any) -> None:
    transaction = client.transaction(TOPIC)

    async def pay() -> None:
        async with transaction:
            await transaction.send("paid")
            raise ValueError("no money")

    with pytest.raises(ValueError, match="no money"):
        await pay()
    assert [receipt.offset for receipt in transaction.receipts] == [-1]
    assert (await client.transactions.list(TOPIC)).total == 0
    assert await bodies(client) == []


async def test_a_block_may_end_its_transaction_itself(client: Any) -> None:
    async with client.transaction(TOPIC) as transaction:
        await transaction.send("dropped")
        await transaction.rollback()
        with pytest.raises(RuntimeError, match="has ended"):
            await transaction.send("late")
    async with client.transaction(TOPIC) as transaction:
        await transaction.send("kept")
        await transaction.commit()
        assert await bodies(client) == ["kept"]


@pytest.mark.slow
async def test_a_block_that_sends_nothing_ends_nothing(client: Any) -> None:
    before = client.client_stats().calls
    async with client.transaction(TOPIC):
        pass
    assert client.client_stats().calls == before


async def test_messages_stored_beside_a_refused_one_are_rolled_back_with_the_block(client: Any) -> None:
    with pytest.raises(errors.PartlyRefused):
        async with client.transaction(TOPIC) as transaction:
            await transaction.send(["good", "", "good too"])
    assert (await client.transactions.list(TOPIC)).total == 0


async def test_a_delayed_message_of_a_transaction_waits_from_its_commit_on(client: Any, advance: Any) -> None:
    async with client.transaction(TOPIC) as transaction:
        await transaction.send(popmq.Message("later", delay="10m"))
        await advance(3.0)
    (receipt,) = transaction.receipts
    assert (receipt.offset, bool(receipt.recall_handle)) == (-1, True)
    await advance(599.0)
    assert await bodies(client) == []
    await advance(1.0)
    assert await bodies(client) == ["later"]


async def test_a_transaction_is_ended_once_and_the_same_way_again(client: Any) -> None:
    sent = await client.send(TOPIC, [popmq.Message("half", transaction=True), popmq.Message("more", transaction=True)])
    one, two = (receipt.transaction_id for receipt in sent)
    committed = await client.transactions.end(one, "commit")
    assert await client.transactions.end(one, "commit") == committed
    with pytest.raises(errors.TransactionEnded):
        await client.transactions.end(one, "rollback")
    with pytest.raises(errors.PartlyRefused) as refused:
        await client.transactions.end([one, two], "rollback")
    assert list(refused.value.errors) == [0]
    with pytest.raises(errors.InvalidField, match="maybe"):
        await client.transactions.end(two, "maybe")
    with pytest.raises(errors.InvalidField):
        await client.transactions.end("nobody's", "commit")


@pytest.mark.parametrize(("resolution", "seen"), [("commit", ["half"]), ("rollback", [])])
async def test_a_checker_decides_an_unresolved_half_message(
    connect: Connect, client: Any, until_ended: Any, resolution: str, seen: list[str]
) -> None:
    sent = await client.send(TOPIC, popmq.Message("half", key="k", properties={"a": "b"}, transaction=True))
    checks: list[popmq.TransactionCheck] = []

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question)
        return resolution

    connect().transactions.on_check(TOPIC, check)
    await until_ended(checks)
    assert await bodies(client) == seen
    question = checks[0]
    assert (question.transaction_id, question.topic, question.check) == (sent.transaction_id, TOPIC, 1)
    assert (question.message.text(), question.message.key, question.message.properties) == ("half", "k", {"a": "b"})


async def test_a_checker_that_does_not_know_or_fails_is_asked_again(
    connect: Connect, client: Any, until_ended: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.send(TOPIC, popmq.Message("half", transaction=True))
    checks: list[int] = []

    def check(question: popmq.TransactionCheck) -> str | None:
        checks.append(question.check)
        if len(checks) == 1:
            return None
        if len(checks) == 2:
            raise ValueError("the database is away")
        return "commit" if len(checks) > 3 else "perhaps"

    connect().transactions.on_check(TOPIC, check)
    await until_ended(checks)
    assert checks[:4] == [1, 2, 3, 4]
    assert await bodies(client) == ["half"]
    assert "the database is away" in caplog.text
    assert "'perhaps' is neither" in caplog.text
    ours = {record.name for record in caplog.records if record.name.startswith("popmq")}
    assert ours == {"popmq.transactions"}  # its stream went on


@pytest.mark.parametrize("error", [asyncio.CancelledError(), SystemExit(3)], ids=repr)
async def test_a_checker_that_raises_what_is_meant_for_others_is_asked_again(
    connect: Connect, client: Any, until_ended: Any, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    await client.send(TOPIC, popmq.Message("half", transaction=True))
    checks: list[int] = []

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question.check)
        if len(checks) == 1:
            raise error
        return "commit"

    connect().transactions.on_check(TOPIC, check)
    await until_ended(checks)
    assert checks == [1, 2]
    assert await bodies(client) == ["half"]
    assert f"the checker of {TOPIC} failed" in caplog.text


async def test_the_callback_of_an_async_client_may_be_a_coroutine_function(
    client: Any, until_ended: Any, popmq_broker: Broker
) -> None:
    await client.send(TOPIC, popmq.Message("half", transaction=True))
    checks: list[int] = []

    async def check(question: popmq.TransactionCheck) -> str:
        await asyncio.sleep(0)
        checks.append(question.check)
        return "commit"

    async with popmq_broker.async_client() as checker:
        checker.transactions.on_check(TOPIC, check)
        await until_ended(checks)
    assert await bodies(client) == ["half"]


@pytest.mark.slow
async def test_one_client_answers_for_several_topics_and_takes_on_more(client: Any, until_ended: Any) -> None:
    seen: list[str] = []

    def check(question: popmq.TransactionCheck) -> str:
        seen.append(question.topic)
        return "rollback"

    for number, (before, after) in enumerate([(0, 2), (2, 3)]):
        for each in range(before, after):
            await client.topics.create(f"t{each}", type="TRANSACTION")
            client.transactions.on_check(f"t{each}", check)
            await client.send(f"t{each}", popmq.Message("half", transaction=True))
        await until_ended(seen)
        assert set(seen) == {f"t{each}" for each in range(after)}, number
    async with client.transaction(TOPIC, on_check=check):
        await client.send(TOPIC, popmq.Message("half", transaction=True))
        await until_ended(seen)


@pytest.mark.slow
async def test_a_checker_outlives_a_broker_that_restarts(client: Any, until_ended: Any, popmq_broker: Broker) -> None:
    checks: list[int] = []

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question.check)
        return "commit"

    client.transactions.on_check(TOPIC, check)
    for _ in range(2):
        await client.send(TOPIC, popmq.Message("half", transaction=True))
        await until_ended(checks)
        await asyncio.to_thread(popmq_broker.restart)
    assert await bodies(client) == ["half", "half"]


@pytest.mark.slow
async def test_a_checker_of_a_topic_that_is_not_there_says_so_and_waits_for_it(
    connect: Connect, client: Any, until_ended: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    for room in ("_async", "_sync"):
        monkeypatch.setattr(f"popmq.{room}.background.checker.REFUSED_AGAIN_S", 0.01)
    checks: list[str] = []

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question.topic)
        return "commit"

    connect().transactions.on_check("refunds", check)
    await eventually(lambda: told(caplog, "checks of transactions of refunds cannot be answered"))
    await client.topics.create("refunds", type="DELAY")
    await client.send("refunds", popmq.Message("half", transaction=True))
    await until_ended(checks)


async def test_a_transaction_takes_no_message_before_its_block_begins(client: Any) -> None:
    transaction = client.transaction(TOPIC)
    with pytest.raises(RuntimeError, match="has not begun: send in its `with` block"):
        await transaction.send("half")
    assert (await client.transactions.list()).total == 0


async def test_a_wrong_topic_of_a_checker_stops_no_checks_of_the_others(
    connect: Connect, client: Any, until_ended: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await client.topics.create("plain")
    checks: list[str] = []

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question.topic)
        return "commit"

    checker = connect()
    for topic in ("missing", "plain", TOPIC):
        checker.transactions.on_check(topic, check)
    await client.send(TOPIC, popmq.Message("half", transaction=True))
    await until_ended(checks)
    assert set(checks) == {TOPIC}
    refused = {record.getMessage().split()[4] for record in caplog.records if record.levelname == "ERROR"}
    assert refused == {"missing", "plain"}


async def test_a_checker_that_cannot_be_called_is_refused_where_it_is_given(client: Any) -> None:
    with pytest.raises(TypeError, match="the checker of 'payments' is 5: give a function"):
        client.transactions.on_check(TOPIC, 5)


@pytest.mark.slow
async def test_a_rollback_that_does_not_reach_the_broker_leaves_the_error_of_the_block(
    connect: Connect, client: Any, until_ended: Any, popmq_broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    short = connect(timeouts=popmq.Timeouts(settle=0.2))
    checks: list[int] = []

    async def pay() -> None:
        async with short.transaction(TOPIC) as transaction:
            await transaction.send("half")
            await asyncio.to_thread(popmq_broker.stop)
            raise ValueError("the block's own")

    with pytest.raises(ValueError, match="the block's own"):
        await pay()
    assert "could not be rolled back" in caplog.text
    await asyncio.to_thread(popmq_broker.start)

    def check(question: popmq.TransactionCheck) -> str:
        checks.append(question.check)
        return "rollback"

    connect().transactions.on_check(TOPIC, check)
    await until_ended(checks)
    assert await bodies(client) == []


DIES = """
    import popmq
    client = popmq.Client({endpoint!r})
    with client.transaction("payments") as transaction:
        transaction.send(popmq.Message("paid", key="order-7"))
        print("sent", flush=True)
        import signal; signal.pause()
"""

ANSWERS = """
    import popmq
    def paid(check):
        print(check.message.key, check.message.text(), flush=True)
        return "commit"
    client = popmq.Client({endpoint!r})
    client.transactions.on_check("payments", paid)
    import sys; sys.stdin.read()
    # It ends without closing its client, with a stream open.
"""


@pytest.mark.slow
def test_a_producer_that_was_killed_is_asked_after_its_restart(popmq_broker: Broker, popmq_clock: FakeClock) -> None:
    client = popmq_broker.client()
    client.topics.create(TOPIC, type="TRANSACTION")
    client.groups.create(GROUP)
    producer = python(DIES, popmq_broker)
    assert producer.stdout
    assert producer.stdout.readline() == "sent\n"
    producer.send_signal(signal.SIGKILL)
    producer.communicate(timeout=60)
    assert client.pop(TOPIC, GROUP) == []
    popmq_clock.advance(30_000)
    again = python(ANSWERS, popmq_broker)
    assert again.stdout
    assert again.stdout.readline() == "order-7 paid\n"
    while client.transactions.list(TOPIC).total:
        assert again.poll() is None
    out, err = again.communicate("", timeout=60)
    assert (out, err, again.returncode) == ("", "", 0)
    assert [delivery.text() for delivery in client.pop(TOPIC, GROUP)] == ["paid"]
