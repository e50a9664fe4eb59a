"""`popmq max-size`: shows and moves the limit of the data file of a running broker."""

import pytest

import popmq
from tests.cli.conftest import Cli


def test_max_size_without_a_size_shows_the_limit(run: Cli, client: popmq.Client) -> None:
    done = run("--json", "max-size")
    assert done.code == 0
    assert done.objects[0]["map_bytes"] == client.broker.stats().store.map_bytes


@pytest.mark.slow
def test_a_size_is_the_limit_from_now_on(run: Cli, client: popmq.Client) -> None:
    done = run("max-size", "2TiB")
    assert (done.code, done.err) == (0, "")
    assert "2 TiB" in done.out or "2.0 TiB" in done.out
    assert client.broker.stats().store.map_bytes == 2 << 40


def test_a_size_that_is_refused_is_a_sentence_and_changes_nothing(run: Cli, client: popmq.Client) -> None:
    before = client.broker.stats().store.map_bytes
    done = run("max-size", "1MiB")
    assert done.code == 1
    assert "map_bytes" in done.err
    assert client.broker.stats().store.map_bytes == before


@pytest.mark.parametrize("size", ["plenty", "99999999999999TiB", "9" * 400])
def test_a_malformed_size_is_wrong_usage(run: Cli, client: popmq.Client, size: str) -> None:
    assert run("max-size", size).code == 2
