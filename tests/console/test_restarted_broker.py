"""A console whose broker is started again with other options, or is away."""

import pathlib
from itertools import islice

import pytest

from popmq import Stats, errors
from popmq.stats import StoreStats
from popmq_console.numbers import Numbers
from popmq_server.embedded_broker import EmbeddedBroker
from tests.console.conftest import KEYS, SECRET, Browser, console


def test_a_broker_that_gets_keys_makes_the_console_ask_for_a_login(tmp_path: pathlib.Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.touch(0o600)
    keys.write_text(KEYS)
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker, console(broker.endpoint, every_s=0.01) as url:
        browser, port = Browser(url), int(broker.endpoint.rpartition(":")[2])
        assert browser.get("/leases").path == "/leases"
        with browser.follow("/keys") as events:
            assert next(events)[0] == "live"
            broker.stop()
            with EmbeddedBroker(tmp_path / "data", sync="none", port=port, access_keys=keys):
                assert "login" in [name for name, _ in islice(events, 300)]
                shown = [Browser(url).get(path).path.split("?")[0] for path in ("/", "/topics", "/keys")]
                assert shown == ["/login", "/login", "/login"]
                browser.log_in("operator", SECRET)
                assert [browser.get(path).path for path in ("/leases", "/keys", "/")] == ["/leases", "/keys", "/"]


async def test_numbers_after_a_failed_question_are_not_taken_for_new_ones() -> None:
    empty = StoreStats(**dict.fromkeys(StoreStats.__slots__, 0))

    class Client:
        refuses = False

        def __init__(self) -> None:
            self.broker = self

        async def stats(self) -> Stats:
            if self.refuses:
                raise errors.Unauthenticated("no key")
            return Stats((), (), empty)

    client = Client()
    numbers = Numbers(client, every_s=3600.0)  # type: ignore[arg-type]
    await numbers.stats()
    numbers._asked_s -= 3600.0
    client.refuses = True
    for _ in range(2):
        with pytest.raises(errors.Unauthenticated):
            await numbers.stats()


def test_a_console_starts_without_a_broker_says_so_and_shows_its_page_when_it_is_there(tmp_path: pathlib.Path) -> None:
    with EmbeddedBroker(tmp_path / "data", sync="none") as broker:
        port = int(broker.endpoint.rpartition(":")[2])
    with console(f"127.0.0.1:{port}", every_s=0.01) as url:
        browser = Browser(url)
        away = browser.get("/topics")
        assert (away.status, "The broker does not answer" in away.plain) == (503, True)
        assert '<meta http-equiv="refresh"' in away.text
        with EmbeddedBroker(tmp_path / "data", sync="none", port=port):
            assert browser.get("/topics").status == 200
        away = browser.get("/topics")
        assert (away.status, 'aria-label="Pages"' in away.text) == (503, True)
