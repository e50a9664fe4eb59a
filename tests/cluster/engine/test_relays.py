"""What an operator asks of a client at one gateway, about a client that is connected to another one."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_remoting.codes import RequestCode
from popmq_remoting.wire.command import Response
from popmq_server.cluster.engine import ClusterEngine
from popmq_server.contract import commands as do
from popmq_server.contract.commands.sessions import ClientAnswer, ShownMessage
from popmq_server.errors import unavailable
from tests.cluster.gateway import GROUP, TOPIC, created, gateway
from tests.cluster.pulling import code, filled, pulling
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.fake.faults import Fault, Kind
from tests.remoting.jumping import jumping, passed


class Asked:
    """A client that answers what it is asked."""

    def __init__(self, *answers: ClientAnswer) -> None:
        self.answers = list(answers)
        self.shown: list[ShownMessage | None] = []

    async def __call__(self, shown: ShownMessage | None) -> ClientAnswer:
        self.shown.append(shown)
        if not self.answers:
            raise unavailable("the client gave no answer in 5 s")
        return self.answers.pop(0)


async def member(engine: ClusterEngine, client: str, asks: Asked | None) -> None:
    await engine.execute(do.Heartbeat(GROUP, client, frozenset((TOPIC,)), asks=asks))


@jumping
async def test_the_stacks_of_a_client_at_another_gateway_come_back_through_the_broker() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        asked = Asked(ClientAnswer("OK", "main: waiting"))
        await member(other, "client", asked)
        assert await one.ask(do.AskClient("client")) == ClientAnswer("OK", "main: waiting")
        assert asked.shown == [None]


@jumping
async def test_a_client_at_another_gateway_is_shown_a_stored_message_and_its_answer_comes_back() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        filled(fake, "b", 1, b"first", b"second")
        asked = Asked(ClientAnswer("FAILED_TO_CONSUME_MESSAGE", "no"), ClientAnswer("OK", "done"))
        await member(other, "client", asked)
        for answer in (ClientAnswer("FAILED_TO_CONSUME_MESSAGE", "no"), ClientAnswer("OK", "done")):
            assert await one.ask(do.AskClient("client", TOPIC, 3, 1)) == answer
        shown, _ = asked.shown
        assert shown is not None
        assert (shown.topic, shown.queue, shown.offset) == (TOPIC, 3, 1)
        assert pb.Message.FromString(shown.data).body == b"second"


@jumping
async def test_a_client_of_a_group_without_member_connections_is_asked_at_its_gateway_too() -> None:
    async with FakeCluster(("a", "b")) as fake, gateway(fake) as one, gateway(fake) as other, gateway(fake) as third:
        created(fake)
        filled(fake, "b", 1, b"first")
        for engine in (other, third):
            await engine.execute(do.RenewSession("client"))
            await passed(1)
        asked = Asked(ClientAnswer("OK", "main: waiting"), ClientAnswer("OK", "done"))
        await member(other, "client", asked)
        assert len(other.members.connections) == 0
        assert await one.ask(do.AskClient("client")) == ClientAnswer("OK", "main: waiting")
        assert await one.ask(do.AskClient("client", TOPIC, 3, 0)) == ClientAnswer("OK", "done")
        assert [shown.offset if shown else None for shown in asked.shown] == [None, 0]
        assert await code(one.ask(do.AskClient("nobody"))) == ("CLIENT_NOT_FOUND", "client_id")


@jumping
async def test_a_client_that_no_gateway_has_that_cannot_be_asked_or_does_not_answer_is_told_apart() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        filled(fake, "a", 0, b"1")
        await member(other, "mute", None)
        await member(other, "slow", Asked())
        assert await code(one.ask(do.AskClient("nobody"))) == ("CLIENT_NOT_FOUND", "client_id")
        assert await code(one.ask(do.AskClient("mute"))) == ("CLIENT_NOT_FOUND", "client_id")
        assert (await code(one.ask(do.AskClient("slow"))))[0] == "UNAVAILABLE"
        assert await code(one.ask(do.AskClient("slow", TOPIC, 0, 7))) == ("MESSAGE_NOT_FOUND", "offset")


@jumping
async def test_the_answer_of_a_native_client_is_read_too() -> None:
    async with FakeCluster() as fake, gateway(fake) as one, gateway(fake) as other:
        created(fake)
        await pulling(one)
        filled(fake, "a", 0, b"1")
        await member(other, "native", Asked())
        faults = fake.brokers["a"].faults
        faults.add(
            Fault(Kind.ANSWER, answer=Response(0, body=b'{"jstack":"t1"}')), RequestCode.GET_CONSUMER_RUNNING_INFO
        )
        assert await one.ask(do.AskClient("native")) == ClientAnswer("OK", "t1")
        for result, said in (("CR_SUCCESS", "OK"), ("CR_LATER", "CR_LATER")):
            body = f'{{"consumeResult":"{result}","remark":null}}'.encode()
            faults.add(Fault(Kind.ANSWER, answer=Response(0, body=body)), RequestCode.CONSUME_MESSAGE_DIRECTLY)
            assert await one.ask(do.AskClient("native", TOPIC)) == ClientAnswer(said, "")
