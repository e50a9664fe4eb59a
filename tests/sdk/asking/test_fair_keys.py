"""Fair keys of a group: as the SDK asks for them, shows them, and gets turns by them."""

import runpy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import popmq
from popmq.errors import InvalidField
from popmq.testing import Broker

EXAMPLE = Path(__file__).parents[3] / "examples" / "fair_keys.py"
ALL = popmq.FairKeys(
    property="tenant",
    label_separator="/",
    in_flight_max=20,
    messages_per_s=5,
    exceptions=(popmq.FairKeyLimits("acme", 100, 0), popmq.FairKeyLimits("", 0, 7)),
)


def of(tenant: str, count: int) -> list[popmq.Message]:
    return [popmq.Message(f"{tenant} {number}", properties={"tenant": tenant}) for number in range(count)]


@pytest.mark.parametrize("fair", [ALL, popmq.FairKeys(message_key=True), None])
def test_a_group_has_the_fair_keys_that_it_was_given(sync_client: popmq.Client, fair: popmq.FairKeys | None) -> None:
    assert sync_client.groups.create("g", fair_keys=fair).fair_keys == fair
    assert sync_client.groups.get("g").fair_keys == fair
    assert sync_client.groups.update("g", max_attempts=3).fair_keys == fair


def test_fair_keys_are_changed_and_turned_off(sync_client: popmq.Client) -> None:
    sync_client.groups.create("g", fair_keys=ALL)
    other = popmq.FairKeys(message_key=True)
    assert sync_client.groups.update("g", fair_keys=other).fair_keys == other
    assert sync_client.groups.update("g", fair_keys=False).fair_keys is None
    assert sync_client.groups.get("g").fair_keys is None


def test_fair_keys_name_one_source(sync_client: popmq.Client) -> None:
    for wrong in (popmq.FairKeys(), popmq.FairKeys(property="p", message_key=True)):
        with pytest.raises(InvalidField) as raised:
            sync_client.groups.create("g", fair_keys=wrong)
        assert raised.value.field == "group.fair_keys.key"


def test_pops_take_turns_and_the_numbers_name_the_busiest_keys(sync_client: popmq.Client) -> None:
    client = sync_client
    client.topics.create("t")
    client.groups.create("g", fair_keys=popmq.FairKeys(property="tenant", in_flight_max=2))
    client.send("t", of("acme", 20))
    client.send("t", of("bolt", 1))
    batch = client.pop("t", "g", max_messages=10)
    assert [each.properties["tenant"] for each in batch] == ["acme", "bolt", "acme"]
    (numbers,) = client.broker.stats("t", "g").groups
    assert (numbers.keys_waiting, numbers.busiest_keys) == (1, (popmq.FairKeyStats("acme", 18, 2),))


def test_a_parked_pop_gets_a_message_when_a_lease_of_its_key_ends(
    sync_client: popmq.Client, popmq_broker: Broker
) -> None:
    client = sync_client
    client.topics.create("t")
    client.groups.create("g", fair_keys=popmq.FairKeys(property="tenant", in_flight_max=1))
    client.send("t", of("acme", 2))
    (first,) = client.pop("t", "g")
    other = popmq_broker.client()
    with ThreadPoolExecutor(1) as pool:
        parked = pool.submit(lambda: other.pop("t", "g", wait=30.0))
        while not client.broker.stats("t", "g").groups[0].waiters:
            pass
        client.ack([first])
        (second,) = parked.result(timeout=30)
    assert second.text() == "acme 1"


def test_the_example_takes_turns(popmq_broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    monkeypatch.setenv("POPMQ_ENDPOINT", popmq_broker.endpoint)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    assert capsys.readouterr().out == "Counter({'acme': 5, 'bolt': 5, 'cove': 5})\n1 ['acme']\n"
