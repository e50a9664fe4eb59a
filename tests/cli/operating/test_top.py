"""`popmq top`: what its keys do, and how it looks in a terminal."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

import popmq
from popmq.testing import Broker
from popmq_cli.readers.top import HELP, keys_of
from popmq_cli.readers.top_view import Numbers, Screen, window
from tests.cli.conftest import Cli


@pytest.fixture
def numbers() -> Numbers:
    groups = [
        popmq.GroupStats("billing", "orders", ready=5, dead=1),
        popmq.GroupStats("audit", "orders", ready=9),
        popmq.GroupStats("mailer", "mails", ready=9),
    ]
    topics = [popmq.TopicStats("orders", 14, 1.5, (), bytes=1000), popmq.TopicStats("mails", 9, 2.5, ())]
    topics += [popmq.TopicStats("%DLQ%billing", 1, 0.0, ()), popmq.TopicStats("%DLQ%audit", 0, 0.0, ())]
    store = popmq.StoreStats(0, 0, 0, 0, 0, 0)
    leases = [
        popmq.Lease(1, "billing", "orders", "one", "", 1_000, 9_000, 3, 2, "normal"),
        popmq.Lease(2, "billing", "orders", "two", "", 2_000, 5_000, 4, 4, "retry"),
    ]
    return Numbers(popmq.Stats(topics=topics, groups=groups, store=store), popmq.Leases(leases, 2), [], 4_000)


def shown(screen: Screen, numbers: Numbers) -> list[list[str]]:
    columns = screen.columns(numbers)
    return [[column.text(column.value(row)) for column in columns] for row in screen.rows(numbers)]


def test_groups_are_sorted_by_what_is_ready_and_equal_ones_by_name(numbers: Numbers) -> None:
    screen = Screen()
    assert [row[0] for row in shown(screen, numbers)] == ["mailer", "audit", "billing"]
    screen.press("r", numbers)
    assert [row[0] for row in shown(screen, numbers)] == ["billing", "mailer", "audit"]
    for _ in range(5):
        screen.press("right", numbers)
    screen.press("r", numbers)
    assert shown(screen, numbers)[0][0] == "billing"  # by DEAD
    for _ in range(len(screen.columns(numbers))):
        screen.press("left", numbers)
    assert screen.view.sort == 7


def test_enter_leads_to_the_leases_of_the_marked_group_and_escape_back(numbers: Numbers) -> None:
    screen = Screen()
    for key in ("down", "down", "down", "enter"):  # there are only three rows
        screen.press(key, numbers)
    assert (screen.name, screen.group, screen.topic) == ("leases", "billing", "orders")
    assert shown(screen, numbers) == [["1s", "retry", "4", "4", "2s", "two"], ["5s", "normal", "2", "3", "3s", "one"]]
    screen.press("escape", numbers)
    assert (screen.name, screen.group, screen.topic, screen.view.marked) == ("groups", "", "", 2)


def test_a_topic_leads_to_its_groups_and_back_to_the_topics(numbers: Numbers) -> None:
    screen = Screen()
    for key in ("tab", "enter"):
        screen.press(key, numbers)
    assert (screen.name, screen.topic) == ("groups", "mails")
    screen.press("backspace", numbers)
    assert (screen.name, screen.topic) == ("topics", "")
    for key in (" ", "q", "no such key"):
        screen.press(key, numbers)
    assert (screen.paused, screen.ended) == (True, True)


def test_dead_letter_topics_that_are_empty_are_not_shown(numbers: Numbers) -> None:
    screen = Screen()
    screen.press("tab", numbers)
    assert [row[0] for row in shown(screen, numbers)] == ["mails", "orders", "%DLQ%billing"]


@pytest.mark.parametrize(("marked", "rows"), [(0, range(4)), (2, range(4)), (5, range(3, 7)), (9, range(6, 10))])
def test_the_marked_row_is_on_the_screen(marked: int, rows: range) -> None:
    assert window(marked, 10, 4) == rows


def test_keys_are_read_from_what_a_terminal_sends() -> None:
    assert list(keys_of(b"\x1b[A\x1bOBq\r\x1b\x7f\t")) == ["up", "down", "q", "enter", "escape", "backspace", "tab"]


def test_top_is_refused_in_a_pipe(run: Cli, broker: Broker) -> None:
    done = run("top")
    assert (done.code, "popmq stats --json" in done.err) == (2, True)


@pytest.fixture
def tmux(broker: Broker) -> Iterator[Callable[..., str]]:
    """A terminal of 100 × 24 in which `popmq top` runs."""
    if shutil.which("tmux") is None:
        pytest.skip("needs tmux")
    socket = f"popmq-{broker.endpoint.rpartition(':')[2]}"

    env = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}

    def tmux(*words: str) -> str:
        return subprocess.run(["tmux", "-L", socket, *words], capture_output=True, text=True, env=env).stdout

    command = f"POPMQ_ENDPOINT={broker.endpoint} {sys.executable} -c 'from popmq_cli.main import main; main()' top"
    tmux("-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "24", f"{command} --every 100ms")
    yield tmux
    tmux("kill-server")


@pytest.mark.process
def test_top_is_drawn_in_a_terminal_and_follows_its_keys(client: popmq.Client, tmux: Callable[..., str]) -> None:
    def until(*texts: str) -> str:
        screen = ""
        while not all(text in screen for text in texts):
            screen = tmux("capture-pane", "-p")
        return screen

    client.send("orders", ["x"] * 5)
    client.pop("orders", "billing", 2)
    until("READY ▼", "billing", "ACK/S", HELP)
    tmux("resize-window", "-x", "60")
    narrow = until("READY ▼", "ACK/S")
    assert "BACKOFF" not in narrow  # left out, so that no number is cut
    tmux("resize-window", "-x", "100")
    tmux("send-keys", "Enter")
    screen = until("leases of billing in orders", client.client_id)
    assert "ENDS IN ▲" in screen
    tmux("send-keys", "Escape")
    until("groups ·")
    tmux("send-keys", "Tab")
    until("topics ·", "SENT/S ▼")
    tmux("send-keys", "q")
    while tmux("list-panes"):
        pass
