"""Gateways in front of brokers with access control and TLS: a user with the rights of docs/cluster.md, and bad days."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import popmq
from harness import rocketmq_secured
from harness.gateway_process import GatewayProcess
from harness.rocketmq_cluster import RocketMQCluster
from popmq_remoting import Cluster, ClusterSettings, Credentials, Request
from tests.remoting.connection.certificates import Certificates

pytestmark = pytest.mark.interop

OPERATOR = Credentials("operator", "the operator's secret")
#: A broker registers 10 s after it listens.
SOON_S = 60.0


class Secured(NamedTuple):
    """A cluster, and the files of its authority."""

    name_server: str
    certificates: Certificates

    def flags(self, key: Path, ca: Path | None = None) -> tuple[str, ...]:
        """Of a gateway whose user is in the file `key`."""
        authority = str(ca or self.certificates.ca)
        return "--broker-key", str(key), "--broker-tls", "verify", "--broker-ca", authority


@pytest.fixture(scope="module")
def secured(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    certificates = Certificates(folder)
    settings = rocketmq_secured.access_control(OPERATOR.access_key, OPERATOR.secret)
    java = rocketmq_secured.tls(certificates.cert, certificates.key)
    with RocketMQCluster(folder / "rocketmq", jars, settings=settings, java=java) as cluster:
        yield Secured(cluster.name_server, certificates)


def asked(secured: Secured, *requests: Request) -> None:
    """Sends requests of the operator to the broker, once it is registered."""

    async def ask() -> None:
        loop = asyncio.get_running_loop()
        cluster = Cluster(ClusterSettings([secured.name_server], f"operator-{uuid.uuid4().hex}", OPERATOR))
        try:
            until_s = loop.time() + SOON_S
            while "a" not in (await cluster.brokers_anew(until_s)).brokers:
                assert loop.time() < until_s
                await asyncio.sleep(0.2)
            for request in requests:
                (await cluster.call("a", request, until_s)).expect()
        finally:
            await cluster.close()

    asyncio.run(ask())


def key_of(folder: Path, name: str, secret: str) -> Path:
    """A file for --broker-key."""
    path = folder / "broker-key.toml"
    path.write_text(f'access_key = "{name}"\nsecret = "{secret}"\n')
    path.chmod(0o600)
    return path


def works(client: popmq.Client) -> None:
    """A message is sent, popped, renewed, released, popped and acked, in a topic and a group of its own."""
    own = uuid.uuid4().hex[:8]
    topic, group = f"orders-{own}", f"billing-{own}"
    client.topics.create(topic)
    client.groups.create(group)
    client.send(topic, ["x", "y"])
    popped = [each for _ in range(2) for each in client.pop(topic, group, 1, wait=20.0)]
    assert sorted(each.text() for each in popped) == ["x", "y"]
    client.extend(popped[0], 60.0)
    client.ack(popped)
    client.groups.delete(group)
    client.topics.delete(topic)


def user_of(secured: Secured, name: str = "") -> tuple[str, str]:
    """A user with the rights that a gateway needs."""
    name = name or f"gateway{uuid.uuid4().hex[:8]}"
    asked(secured, rocketmq_secured.user(name, "a secret"), rocketmq_secured.rights(name))
    return name, "a secret"


def test_a_gateway_with_a_user_and_verified_certificates_serves_all_calls(secured: Secured, tmp_path: Path) -> None:
    key = key_of(tmp_path, *user_of(secured))
    with (
        GatewayProcess(tmp_path / "gateway.log", secured.name_server, *secured.flags(key)) as gateway,
        popmq.Client(gateway.endpoint) as client,
    ):
        works(client)


def test_a_wrong_secret_is_the_operators_to_mend_and_no_fault_of_the_client(secured: Secured, tmp_path: Path) -> None:
    name, _ = user_of(secured)
    key = key_of(tmp_path, name, "another secret")
    gateway = GatewayProcess(tmp_path / "gateway.log", secured.name_server, *secured.flags(key))
    gateway.spawn()
    try:
        line = gateway.read_line()
        refused = refusal(gateway)
    finally:
        gateway.kill()
    assert "waiting for a master" in line
    assert "signature" in line
    assert isinstance(refused, popmq.errors.Unavailable)
    assert "broker a" in str(refused)
    assert "--broker-key" in str(refused)


def test_a_right_that_is_missing_is_the_operators_to_mend(secured: Secured, tmp_path: Path) -> None:
    name = f"narrow{uuid.uuid4().hex[:8]}"
    rights = {**rocketmq_secured.RIGHTS, "Topic:*": ("Get", "List")}
    asked(secured, rocketmq_secured.user(name, "a secret"), rocketmq_secured.rights(name, rights))
    flags = secured.flags(key_of(tmp_path, name, "a secret"))
    with GatewayProcess(tmp_path / "gateway.log", secured.name_server, *flags) as gateway:
        refused = refusal(gateway)
    assert isinstance(refused, popmq.errors.Unavailable)
    assert "broker a" in str(refused)
    assert "right" in str(refused)


def test_a_check_says_that_the_gateways_may_not_meet_in_their_group(secured: Secured, tmp_path: Path) -> None:
    name = f"apart{uuid.uuid4().hex[:8]}"
    own = {"Group:billing*" if kind == "Group:*" else kind: rights for kind, rights in rocketmq_secured.RIGHTS.items()}
    asked(secured, rocketmq_secured.user(name, "a secret"), rocketmq_secured.rights(name, own))
    words = [
        sys.executable,
        "-c",
        "from popmq_cli.main import main; main()",
        "cluster",
        "check",
        "--json",
        "--namesrv",
        secured.name_server,
    ]
    for user, found in ((name, ["the right to subscribe, on Group:CID_RMQ_SYS_POPMQ"]), (user_of(secured)[0], [])):
        flags = secured.flags(key_of(tmp_path, user, "a secret"))
        done = subprocess.run([*words, *flags], capture_output=True, text=True, timeout=60)
        rows = [json.loads(line) for line in done.stdout.splitlines()]
        assert [row["wanted"] for row in rows if row.get("setting") == "(rights of the user)"] == found, done.stderr


def test_another_authority_is_named_while_the_gateway_waits(secured: Secured, tmp_path: Path) -> None:
    key = key_of(tmp_path, *user_of(secured))
    flags = secured.flags(key, secured.certificates.other_ca)
    gateway = GatewayProcess(tmp_path / "gateway.log", secured.name_server, *flags)
    gateway.spawn()
    try:
        line = gateway.read_line()
        assert "waiting for the name servers" in line
        assert "certificate" in line
    finally:
        gateway.kill()


def refusal(gateway: GatewayProcess) -> popmq.PopMQError:
    """What a client hears that makes a topic, and tries once."""
    with popmq.Client(gateway.endpoint, retry=popmq.Retry(tries=1)) as client:
        try:
            client.topics.create(f"orders-{uuid.uuid4().hex[:8]}")
        except popmq.PopMQError as error:
            return error
    raise AssertionError("it was made")


def test_a_user_is_rotated_by_a_reload(secured: Secured, tmp_path: Path) -> None:
    old, secret = user_of(secured)
    key = key_of(tmp_path, old, secret)
    with (
        GatewayProcess(tmp_path / "gateway.log", secured.name_server, *secured.flags(key)) as gateway,
        popmq.Client(gateway.endpoint) as client,
    ):
        works(client)
        key_of(tmp_path, *user_of(secured))
        os.kill(gateway.pid, signal.SIGHUP)
        gateway.wait_log("reload: ")
        asked(secured, rocketmq_secured.no_user(old))
        works(client)
