"""Settings that an engine has none of, as the SDK and the command line treat them."""

import pytest

import popmq
from popmq.errors import InvalidField
from popmq_cli.commands import popmq as command_line
from tests.wire.served import ServedCluster


@pytest.fixture
def client(gateway: ServedCluster) -> popmq.Client:
    return popmq.Client(gateway.endpoint)


def test_a_setting_is_changed_where_the_engine_has_no_room_for_others(client: popmq.Client) -> None:
    with client:
        client.groups.create("billing")
        assert client.groups.update("billing", max_attempts=5).max_attempts == 5
        with pytest.raises(InvalidField, match="in_flight_max is 0"):
            client.groups.update("billing", in_flight_max=0)
        client.topics.create("orders", queues=2)
        assert client.topics.update("orders", queues=4).queues == 4


def test_people_are_not_told_a_limit_that_does_not_exist(
    client: popmq.Client, gateway: ServedCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with client:
        client.groups.create("billing")
        client.topics.create("orders")
    for words, line in (
        (["group", "describe", "billing"], "in flight"),
        (["topic", "describe", "orders"], "retention"),
    ):
        with pytest.raises(SystemExit):
            command_line([*words, "--endpoint", gateway.endpoint], prog_name="popmq")
        (shown,) = (text for text in capsys.readouterr().out.splitlines() if text.strip().startswith(line))
        assert shown.split()[-1] == "–"


@pytest.mark.parametrize("name", ["shop%orders", "shop|orders", "shop+orders", "%RETRY%bill", "%LMQ%orders"])
def test_a_name_with_the_signs_of_rocketmq_is_refused_and_reaches_no_broker(
    client: popmq.Client, gateway: ServedCluster, name: str
) -> None:
    """A gateway writes `shop.orders` as shop%orders at the brokers: nobody gets at a topic by its name there."""

    async def asked() -> int:
        return sum(broker.counts.total() for broker in gateway.fake.brokers.values())

    with client:
        client.topics.create("shop.orders", queues=2)
        client.groups.create("bill")
        before = gateway.within(asked())
        for call in (
            lambda: client.topics.create(name),
            lambda: client.topics.delete(name),
            lambda: client.send(name, "x"),
            lambda: client.pop(name, "bill"),
            lambda: client.offsets.query(name),
        ):
            with pytest.raises(InvalidField):
                call()
        assert gateway.within(asked()) == before
