"""Transactions through gateways: a message is delivered once, however often and at whichever gateway it is ended."""

import asyncio

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.cluster.signed import transactions
from popmq_server.contract import commands as do
from popmq_server.contract.commands import End, Ended, Place
from popmq_server.errors import Refused
from tests.cluster.gateway import GROUP, TOPIC, bodies, created, gateway, pop, send
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind, answering
from tests.remoting.jumping import jumping, passed


def half(number: int = 1) -> pb.Message:
    return pb.Message(message_id=f"id-{number}", body=b"%d" % number, transaction=True)


async def begun(engine: ClusterEngine, *messages: pb.Message) -> list[str]:
    """Transaction ids."""
    places = await send(engine, *messages or [half()])
    return [place.transaction_id for place in places if isinstance(place, Place)]


async def ended(engine: ClusterEngine, *texts: str, commit: bool = True) -> list[Ended | Refused]:
    return await engine.execute(do.EndTransaction(tuple(End(text, commit) for text in texts)))


def checked(engine: ClusterEngine, text: str) -> str:
    """The id of a check of the same half message."""
    secrets = engine.shared.secrets
    return transactions.write(secrets, transactions.read(secrets, text)._replace(from_check=True))


def codes(results: list[Ended | Refused]) -> list[str]:
    return [result.code if isinstance(result, Refused) else "" for result in results]


def transactional(fake: FakeCluster) -> None:
    created(fake, **{"message.type": "TRANSACTION"})


def commits(fake: FakeCluster) -> int:
    """Requests that end a transaction, to all brokers."""
    return sum(broker.counts[RequestCode.END_TRANSACTION] for broker in fake.brokers.values())


@jumping
async def test_a_half_message_is_delivered_after_its_commit_at_any_gateway() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        transactional(fake)
        texts = await begun(one, half(1), half(2))
        assert (await pop(one)).rows == []
        assert await ended(other, texts[0]) == [Ended("id-1", Place())]
        assert await ended(other, texts[1], commit=False) == [Ended("id-2", Place())]
        assert bodies(await pop(one)) == [b"1"]


@jumping
async def test_a_second_commit_delivers_nothing_and_tells_the_place_of_the_first() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as one, gateway(fake) as other:
        transactional(fake)
        (text,) = await begun(one)
        await ended(one, text)
        popped = await pop(one)
        (_, _, queue, offset, _, _) = popped.rows[0]
        assert await ended(other, text) == [Ended("id-1", Place(queue, offset))]
        assert commits(fake) == 1


@jumping
async def test_a_commit_that_comes_again_before_the_broker_can_find_the_message_is_answered_from_memory() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        fake.brokers["a"].index_lag_ms = 10_000
        (text,) = await begun(engine)
        results = await asyncio.gather(*(ended(engine, text) for _ in range(5)), ended(engine, text, text))
        assert {code for each in results for code in codes(each)} == {""}
        assert await ended(engine, text) == [Ended("id-1", Place())]
        assert commits(fake) == 1


@jumping
@pytest.mark.parametrize("commit", [True, False])
async def test_the_other_decision_is_refused_and_changes_nothing(commit: bool) -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        await ended(engine, text, commit=commit)
        assert codes(await ended(engine, text, commit=not commit)) == ["TRANSACTION_ENDED"]
        assert commits(fake) == 1
        assert bodies(await pop(engine)) == ([b"1"] if commit else [])


@jumping
async def test_a_rollback_of_what_another_gateway_has_committed_is_refused() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as one, gateway(fake) as other:
        transactional(fake)
        (text,) = await begun(one)
        await ended(one, text)
        assert codes(await ended(other, text, commit=False)) == ["TRANSACTION_ENDED"]


@jumping
async def test_an_end_whose_answer_was_lost_is_done_once_when_it_is_repeated() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        fake.brokers["a"].faults.add(Fault(Kind.CUT, size=4), RequestCode.END_TRANSACTION)
        assert codes(await ended(engine, text)) == ["UNAVAILABLE"]
        assert codes(await ended(engine, text)) == [""]
        assert (commits(fake), bodies(await pop(engine))) == (1, [b"1"])


@jumping
async def test_a_commit_whose_answer_was_lost_may_be_repeated_at_once_before_the_broker_can_find_the_message() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        fake.brokers["a"].index_lag_ms = 7
        fake.brokers["a"].faults.add(Fault(Kind.CUT), RequestCode.END_TRANSACTION)
        assert codes(await ended(engine, text)) == ["UNAVAILABLE"]
        assert codes(await ended(engine, text)) == [""]
        assert bodies(await pop(engine)) == [b"1"]


@jumping
async def test_nothing_is_committed_while_its_broker_cannot_say_whether_it_was() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        fake.brokers["a"].faults.add(answering(1, "disk"), RequestCode.QUERY_MESSAGE)
        assert codes(await ended(engine, text)) == ["UNAVAILABLE"]
        assert commits(fake) == 0
        assert codes(await ended(engine, text)) == [""]


@jumping
async def test_an_end_that_is_too_late_waits_for_the_check_which_takes_one_of_any_age() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        await passed(10.0)
        (late,) = await ended(engine, text)
        assert isinstance(late, Refused)
        assert (late.code, late.action.partition(":")[0]) == ("TRANSACTION_NOT_FOUND", "wait for the check")
        assert codes(await ended(engine, checked(engine, text))) == [""]
        assert bodies(await pop(engine)) == [b"1"]


@jumping
async def test_a_half_message_that_its_broker_has_no_more_is_not_found() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        (text,) = await begun(engine)
        fake.brokers["a"].halves.clear()
        assert codes(await ended(engine, text)) == ["TRANSACTION_NOT_FOUND"]


@jumping
async def test_a_half_message_that_was_sent_twice_to_two_brokers_is_delivered_once() -> None:
    """Its producer had no answer to the first Send; a broker asks about it after the second was committed."""
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        transactional(fake)
        (first,), (second,) = await begun(one), await begun(one)
        places = [transactions.read(one.shared.secrets, text).broker for text in (first, second)]
        assert sorted(places) == ["a", "b"]
        await ended(one, second)
        assert codes(await ended(other, checked(other, first))) == [""]
        assert bodies(await pop(one)) == [b"1"]
        rollbacks = [each for each in fake.brokers[places[0]].requests if each.code == RequestCode.END_TRANSACTION]
        assert [each.fields["commitOrRollback"] for each in rollbacks] == ["12"]


@jumping
async def test_ids_that_no_gateway_signed_are_refused_and_have_no_topic() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine, gateway(fake, b"another secret") as stranger:
        transactional(fake)
        texts = [*await begun(engine), *await begun(stranger, half(2)), "damaged"]
        assert codes(await ended(engine, *texts)) == ["", "INVALID_FIELD", "INVALID_FIELD"]
        assert await engine.ask(do.TopicsOf(tuple(texts))) == {TOPIC}
        assert await engine.ask(do.TopicsOf(tuple(texts[1:]))) == frozenset()


@jumping
async def test_a_bad_end_among_others_is_refused_alone() -> None:
    async with FakeCluster(("a",)) as fake, gateway(fake) as engine:
        transactional(fake)
        texts = await begun(engine, *map(half, range(40)))
        bad = Refused("INVALID_FIELD", "no decision")
        ends: list[End | Refused] = [End(text, True) for text in texts]
        ends.insert(20, bad)
        results = await engine.execute(do.EndTransaction(tuple(ends)))
        assert [place for place, result in enumerate(results) if isinstance(result, Refused)] == [20]
        assert len((await engine.pop(do.Pop(TOPIC, GROUP, max_messages=100), 0)).rows) == 40
