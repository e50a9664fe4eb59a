"""`popmq cluster` over the brokers of tests/remoting/fake: arguments in, exit code and output out."""

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from popmq_cli.broker.cluster import cluster
from popmq_remoting import Response, ResponseCode
from popmq_remoting.codes import RequestCode
from popmq_server.cluster import layout
from popmq_server.cluster.operating.judging import RULES
from tests.remoting.fake.cluster import FakeCluster

KNOWN = "shop%orders"


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def over(test: Callable[[FakeCluster, Callable[..., Result]], None], name_servers: int = 1) -> None:
    """Runs `test` in a thread beside the brokers; it gets the command line, which reaches them."""

    async def beside() -> None:
        async with FakeCluster(("a", "b"), name_servers) as fake:
            for broker in fake.brokers.values():
                broker.log.now_ms = wall_ms
                broker.settings |= {rule.setting: rule.wanted for rule in RULES}
            namesrv = ",".join(fake.settings().name_servers)

            def run(*words: str) -> Result:
                return CliRunner().invoke(cluster, [*words, "--namesrv", namesrv])

            await asyncio.to_thread(test, fake, run)

    asyncio.run(beside())


def test_a_cluster_whose_settings_keep_all_promises_ends_with_0() -> None:
    def checked(fake: FakeCluster, run: Callable[..., Result]) -> None:
        done = run("check")
        assert (done.exit_code, done.stderr) == (0, "no setting weakens a promise\n")
        assert [line.split("\t")[:5] for line in done.stdout.splitlines()[1:3]] == [
            [name, "0", "master", broker.address, "V5_3_3"] for name, broker in fake.brokers.items()
        ]

    over(checked)


def test_a_setting_that_breaks_a_promise_is_named_with_what_to_set_and_the_exit_code_is_1() -> None:
    def checked(fake: FakeCluster, run: Callable[..., Result]) -> None:
        fake.brokers["b"].settings |= {"flushDiskType": "ASYNC_FLUSH", "autoCreateTopicEnable": "true"}
        done = run("check")
        rows = [line.split("\t") for line in done.stdout.splitlines()]
        assert ["b", "flushDiskType", "ASYNC_FLUSH", "SYNC_FLUSH", "OK of a Send", "NO"] in [row[:6] for row in rows]
        assert (done.exit_code, done.stderr) == (1, "1 of 2 findings break a promise\n")
        told = [json.loads(line) for line in run("check", "--json").stdout.splitlines()]
        assert {each["setting"]: each["is_met"] for each in told if "setting" in each} == {
            "flushDiskType": False,
            "autoCreateTopicEnable": True,
        }
        fake.brokers["b"].settings["flushDiskType"] = "SYNC_FLUSH"
        assert run("check").exit_code == 0

    over(checked)


def test_a_user_who_may_not_be_in_the_group_of_the_gateways_is_found_and_breaks_no_promise() -> None:
    def checked(fake: FakeCluster, run: Callable[..., Result]) -> None:
        refused = Response(ResponseCode.NO_PERMISSION, "no right to group CID_RMQ_SYS_POPMQ")
        fake.brokers["b"].handlers[RequestCode.UNREGISTER_CLIENT] = lambda client, request: refused
        done = run("check")
        (row,) = [line.split("\t") for line in done.stdout.splitlines() if line.startswith("b\t(rights")]
        assert row[2:4] == [refused.remark, "the right to subscribe, on Group:CID_RMQ_SYS_POPMQ"]
        assert done.exit_code == 0

    over(checked)


def test_brokers_have_versions_replicas_clocks_and_disks() -> None:
    def shown(fake: FakeCluster, run: Callable[..., Result]) -> None:
        fake.brokers["a"].replicas = [True, False]
        fake.brokers["b"].log.now_ms = lambda: wall_ms() + 60_000
        first, second = (json.loads(line) for line in run("brokers", "--json").stdout.splitlines())
        assert (first["broker"], first["role"], first["replicas"], first["in_sync"]) == ("a", "master", 2, 1)
        assert abs(first["ahead_s"]) < 3
        assert abs(second["ahead_s"] - 60) < 3
        assert second["disk"] == "Total : 100.0 GiB, Free : 75.0 GiB."
        assert "settings" not in first

    over(shown)


def test_a_layout_is_shown_and_written_to_all_name_servers() -> None:
    def laid(fake: FakeCluster, run: Callable[..., Result]) -> None:
        fake.create(KNOWN, 2)
        for broker in fake.brokers.values():
            broker.log.topics[KNOWN].attributes["message.type"] = "FIFO"
        servers = dict.fromkeys(fake.settings().name_servers, "")
        shown = json.loads(run("layout", "shop.orders", "--json").stdout)
        assert shown == {"topic": "shop.orders", "used": "", "by_server": servers}
        wrong = run("layout", "shop.orders", "--set", "b=2")
        assert (wrong.exit_code, "is no layout" in wrong.stderr) == (1, True)
        assert json.loads(run("layout", "shop.orders", "--set", "b:2;a:2", "--json").stdout)["used"] == "b:2;a:2"
        assert {server.kv[layout.namespace(True), KNOWN] for server in fake.name_servers} == {"b:2;a:2"}
        fake.name_servers[0].kv[layout.namespace(True), KNOWN] = "a:2;b:2"
        found = json.loads(run("layout", "shop.orders", "--json").stdout)
        assert (found["used"], sorted(found["by_server"].values())) == ("", ["a:2;b:2", "b:2;a:2"])
        fake.create("normal", 1)
        assert json.loads(run("layout", "normal", "--json").stdout)["used"] == "a:1;b:1"
        assert run("layout", "other").exit_code == 1

    over(laid, name_servers=2)


def test_what_is_wrong_with_the_call_is_one_sentence_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPMQ_NAMESRV", raising=False)
    run = CliRunner().invoke
    assert run(cluster, ["brokers"]).exit_code == 2
    monkeypatch.setenv("POPMQ_DATA", "/nowhere")  # of a broker that runs here too
    away = run(cluster, ["brokers", "--namesrv", "127.0.0.1:1"])
    assert (away.exit_code, "127.0.0.1:1" in away.stderr) == (3, True)
    key = tmp_path / "key.toml"
    key.write_text("access_key = 1")
    key.chmod(0o600)
    refused = run(cluster, ["brokers", "--namesrv", "127.0.0.1:1", "--broker-key", str(key)])
    assert (refused.exit_code, "access_key is not a text" in refused.stderr) == (1, True)
