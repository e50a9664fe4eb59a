"""Whether a gateway reaches its cluster, and what it says while it does not."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from popmq_remoting import Cluster, ClusterSettings, ClusterTls, TlsMode
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.gateway.reach import AGAIN_S, QUIET_S, WAIT_S, Reach
from popmq_server.errors import Refused
from tests.remoting.connection.certificates import Certificates
from tests.remoting.fake.cluster import FakeCluster
from tests.remoting.jumping import jumping, passed

#: Without TLS.
PLAIN = ClusterTls()


@asynccontextmanager
async def reaching(*addresses: str, cluster: str = "", tls: ClusterTls = PLAIN) -> AsyncIterator[Reach]:
    """A gateway's look at these name servers."""
    client = Cluster(ClusterSettings(addresses, "me", tls=tls))

    async def reached() -> None:
        """Nothing is learnt from it."""

    reach = Reach(Brokers(client, cluster), addresses, cluster, asyncio.get_running_loop().time, reached)
    reach.start()
    try:
        yield reach
    finally:
        await reach.close()
        await client.close()


async def why(reach: Reach) -> str:
    with pytest.raises(Refused) as refused:
        await reach.ready()
    assert refused.value.code == "UNAVAILABLE"
    return refused.value.message


@asynccontextmanager
async def stranger(said: bytes, *, at_once: bool = False) -> AsyncIterator[str]:
    """The address of a server of another protocol: what it says to a request, or as soon as somebody connects."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not at_once:
            await reader.read(1)
        writer.write(said)
        if not said:
            writer.close()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


@jumping
async def test_a_gateway_is_ready_when_a_master_has_answered() -> None:
    async with FakeCluster(("a", "b")) as fake:
        fake.create("t")
        await fake.brokers["b"].stop()
        async with reaching(*fake.settings().name_servers) as reach:
            await reach.ready()
            assert reach.versions == {"a": "V5_3_3"}


@jumping
async def test_it_waits_for_name_servers_brokers_and_a_master_and_says_for_which(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with FakeCluster() as fake:
        fake.forget()
        (address,) = fake.settings().name_servers
        await fake.name_servers[0].stop()
        with caplog.at_level(logging.INFO, "popmq.cluster"):
            async with reaching(address) as reach:
                said = await why(reach)
                assert said.startswith(f"waiting for the name servers {address}: cannot connect to {address}: ")
                await passed(QUIET_S - 10)
                assert len(caplog.records) == 1, "it is said once a minute, not with each look"
                await passed(20.0)
                assert len(caplog.records) == 2
                await fake.name_servers[0].start()
                await passed(10.0)
                assert await why(reach) == f"waiting for brokers: the name servers {address} know none"
                await fake.brokers["a"].stop()
                fake.create("t")
                await passed(31.0)
                assert (await why(reach)).startswith("waiting for a master of the cluster: a: ")
                await fake.brokers["a"].start()
                await passed(AGAIN_S + WAIT_S)
                await reach.ready()
        assert caplog.records[-1].getMessage() == "the cluster is reached: a (V5_3_3)"


@jumping
async def test_name_servers_that_are_silent_later_do_no_harm_and_a_dead_broker_is_told() -> None:
    async with FakeCluster() as fake:
        fake.create("t")
        async with reaching(*fake.settings().name_servers) as reach:
            await reach.ready()
            await fake.name_servers[0].stop()
            await passed(120.0)
            await reach.ready()
            await fake.brokers["a"].stop()
            await passed(2 * AGAIN_S)
            assert (await why(reach)).startswith("waiting for a master of the cluster: a: ")


@jumping
async def test_a_cluster_that_is_not_there_or_not_the_only_one_has_to_be_named() -> None:
    async with FakeCluster() as fake:
        fake.create("t")
        servers = fake.settings().name_servers
        async with reaching(*servers, cluster="east") as reach:
            said = await why(reach)
            assert said == "the name servers know no cluster 'east', but c: name one of them by --cluster"
        async with reaching(*servers, cluster="c") as reach:
            await reach.ready()


@jumping
@pytest.mark.parametrize(
    ("said", "at_once", "names"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", False, "it speaks HTTP"),
        (b"\x00\x00\x12\x04\x00\x00\x00\x00\x00" + b"\x00" * 18, True, "it speaks HTTP/2"),
        (b"\x15\x03\x03\x00\x02\x02\x46", False, "it speaks TLS"),
        (b"-ERR unknown command\r\n", False, "it speaks Redis"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", True, "it speaks SSH"),
        (b"\xff" * 40, True, "a frame of 4294967295 bytes"),
        (b"", False, "closed by the other side"),
    ],
    ids=lambda value: str(value)[:20],
)
async def test_what_is_no_name_server_is_named_with_what_it_spoke(said: bytes, at_once: bool, names: str) -> None:
    async with stranger(said, at_once=at_once) as address, reaching(address) as reach:
        message = await why(reach)
        assert message.startswith(f"waiting for the name servers {address}: ")
        assert address in message.removeprefix(f"waiting for the name servers {address}: ")
        assert names in message
        assert "\n" not in message


@jumping
async def test_the_address_of_a_broker_is_no_name_server() -> None:
    async with FakeCluster() as fake:
        address = fake.brokers["a"].address
        async with reaching(address) as reach:
            assert f"the name server {address} answered with code 3" in await why(reach)


def test_a_cluster_whose_certificates_are_of_another_authority_is_waited_for_and_the_reason_names_it(
    tmp_path: Path,
) -> None:
    certificates = Certificates(tmp_path)

    @jumping
    async def run() -> None:
        wrong, right = (ClusterTls(TlsMode.VERIFY, str(ca)) for ca in (certificates.other_ca, certificates.ca))
        async with FakeCluster(tls=certificates.server(asks_client=False)) as fake:
            (address,) = fake.settings().name_servers
            async with reaching(address, tls=wrong) as reach:
                said = await why(reach)
                assert said.startswith(f"waiting for the name servers {address}: ")
                assert "certificate verify failed" in said
            async with reaching(address, tls=right) as reach:
                await reach.ready()

    run()
