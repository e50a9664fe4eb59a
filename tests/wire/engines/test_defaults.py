"""What a user leaves out is not asked for: an engine that has no such setting serves the call."""

import popmq
from tests.wire.served import Served


def test_an_engine_without_retention_quotas_and_limits_of_groups_creates_topics_and_groups(second: Served) -> None:
    with popmq.Client(second.endpoint) as client:
        lacking = client.info().lacking
        assert {"retention", "quotas", "in_flight_max", "subscription_expiry"} <= {*lacking}
        assert client.topics.create("orders").name == "orders"
        assert client.groups.create("billing").name == "billing"
