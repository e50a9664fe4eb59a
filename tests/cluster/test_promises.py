"""What the cluster engine says of itself."""

from popmq_server.cluster import promises
from popmq_server.contract.capabilities import CAPABILITIES, RECALL
from popmq_server.contract.commands.catalog import BY_SETTING
from popmq_server.contract.promises import PROMISES


def test_the_engine_names_only_capabilities_and_promises_of_the_contract() -> None:
    info = promises.info()
    assert info.lacking < CAPABILITIES.keys()
    assert info.weaker.keys() <= PROMISES.keys()
    assert all(sentence and not sentence.endswith(".") for sentence in info.weaker.values())


def test_what_a_consumer_and_spark_need_is_there() -> None:
    needed = {"pull", "peek", "browse", "look_up", "transactions", "redrive", "reset_offsets", "wait_available"}
    assert not needed & promises.info().lacking


def test_settings_that_no_broker_keeps_are_lacking_instead_of_dropped_silently() -> None:
    """A gateway creates topics and groups with none of them: a setting that is added later is lacking too."""
    assert {capability.name for capability in BY_SETTING.values()} <= promises.info().lacking
    assert {"lite", "owners", "stages"} <= promises.info().lacking


def test_what_the_weakest_broker_lacks_is_lacking_too() -> None:
    assert promises.info(frozenset({RECALL})).lacking == promises.info().lacking | {"recall"}
