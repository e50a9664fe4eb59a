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
