"""How quick the console's pages are beside many topics and dead letters, and what they cost a neighbour's messages.

    python -m bench.parts.console [TOPICS] [DEAD_LETTERS]   else 1,000, each with a group, and 100,000

It fills a broker, starts `popmq console` beside it, gets each page, delivers all dead letters again with the page's
button, and sends messages meanwhile. Times are in milliseconds, sizes those of the page as it is sent.
"""

import contextlib
import http.client
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import popmq
from harness.broker_process import BrokerProcess

TOPICS, DEAD_LETTERS = 1_000, 100_000
BATCH, PAGE_GETS = 250, 10
#: The group that has the dead letters, and the reason of each: the traceback of a handler.
GROUP = "worker-0"
REASON = 'Traceback (most recent call last):\n  File "app.py", line 7, in work\nValueError: order {} does not fit\n'
#: Sends of the neighbour in a second, and its seconds before the first page.
SENDS_PER_S, BEFORE_S = 50, 5.0
PAGES = {
    "overview": "/",
    "topics, first page": "/topics",
    "topics, by size, page 10": "/topics?sort=size&page=10",
    "topics, name found": "/topics?q=topic-77",
    "topic": "/topic?name=topic-0",
    "groups": "/groups",
    "group": f"/group?name={GROUP}",
    "sessions": "/sessions",
    "leases": "/leases",
    "messages": "/messages?topic=topic-0",
    "dead letters": "/dead-letters",
    "dead letters, first page": f"/dead-letters/group?group={GROUP}",
    "dead letters, in the middle": f"/dead-letters/group?group={GROUP}&offset={DEAD_LETTERS // 2}",
    "dead letters, a reason found": f"/dead-letters/group?{urlencode({'group': GROUP, 'reason': 'order 3999 '})}",
    "dead letters, no such reason": f"/dead-letters/group?{urlencode({'group': GROUP, 'reason': 'no such text'})}",
    "message groups": "/message-groups",
    "delayed": "/delayed",
}


def fill(client: popmq.Client, topics: int, dead_letters: int) -> None:
    """Creates topics, each with a group, and rejects `dead_letters` messages of the first."""
    for number in range(topics):
        client.topics.create(f"topic-{number}")
        client.groups.create(f"worker-{number}", start="earliest")
        client.pop(f"topic-{number}", f"worker-{number}", max_messages=1)
    for first in range(0, dead_letters, BATCH):
        client.send("topic-0", [f"order {number}" for number in range(first, first + BATCH)])
        client.reject(client.pop("topic-0", GROUP, max_messages=BATCH), REASON.format(first))


class Neighbour(threading.Thread):
    """Sends at its times, whatever the answers take; durations count from when a send was due."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(daemon=True)
        self._client = popmq.Client(endpoint)
        self._ended = threading.Event()
        self.sends_ms: list[float] = []

    def run(self) -> None:
        due = time.monotonic()
        while not self._ended.wait(max(0.0, due - time.monotonic())):
            self._client.send("topic-1", "a message")
            self.sends_ms.append((time.monotonic() - due) * 1000)
            due += 1 / SENDS_PER_S

    def taken(self) -> str:
        """p50 and p99 since the last time."""
        found, self.sends_ms = sorted(self.sends_ms), []
        return f"p50 {found[len(found) // 2]:.1f} ms, p99 {found[int(len(found) * 0.99)]:.1f} ms"

    def end(self) -> None:
        self._ended.set()
        self.join()
        self._client.close()


@contextlib.contextmanager
def console(endpoint: str) -> Iterator[str]:
    """The address of a console process."""
    command = [str(Path(sys.executable).with_name("popmq")), "console", "--endpoint", endpoint, "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().split("http://")[1].strip().rstrip("/")
        process.terminate()


def get(address: str, path: str) -> tuple[int, str, str]:
    """(status, cookie, page)."""
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, (answer.getheader("set-cookie") or "").partition(";")[0], answer.read().decode()


def redrive_all(client: popmq.Client, address: str) -> float:
    """Presses the button; seconds until no dead letter is left."""
    page = f"/dead-letters/group?group={GROUP}"
    _, cookie, text = get(address, page)
    token = re.search(r'name="csrf" value="(\w+)"', text)
    form = urlencode({"csrf": token[1] if token else "", "group": GROUP, "origin": "", "reason": ""})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": cookie, "Origin": f"http://{address}"}
    began = time.monotonic()
    with contextlib.closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request("POST", "/dead-letters/redrive-all", form, headers)
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.SEE_OTHER:
            raise RuntimeError(f"{answer.status}: {answer.read().decode()}")
    while any(row.dead for row in client.broker.stats().groups if row.group == GROUP):
        time.sleep(0.5)
    return time.monotonic() - began


def main(topics: int, dead_letters: int) -> None:
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        broker = stack.enter_context(BrokerProcess(Path(folder) / "data"))
        client = stack.enter_context(popmq.Client(broker.endpoint))
        address = stack.enter_context(console(broker.endpoint))
        began = time.monotonic()
        fill(client, topics, dead_letters)
        print(
            f"{topics:,} topics and groups, {dead_letters:,} dead letters: filled in {time.monotonic() - began:.0f} s"
        )
        neighbour = Neighbour(broker.endpoint)
        neighbour.start()
        time.sleep(BEFORE_S)
        print(f"sends before the first page: {neighbour.taken()}")
        for name, path in PAGES.items():
            measure(name, address, path)
        print(f"sends beside pages: {neighbour.taken()}")
        print(f"all dead letters delivered again in {redrive_all(client, address):.0f} s")
        print(f"sends beside that: {neighbour.taken()}")
        neighbour.end()


def measure(name: str, address: str, path: str) -> None:
    """Gets a page a few times; the first time fills the console's caches."""
    times = []
    for _ in range(PAGE_GETS):
        at = time.monotonic()
        status, _, text = get(address, path)
        times.append((time.monotonic() - at) * 1000)
        if status != http.HTTPStatus.OK:
            raise RuntimeError(f"{name}: {status}")
    first, rest = times[0], sorted(times[1:])
    print(f"{name:<30} first {first:6.0f}  p50 {rest[len(rest) // 2]:6.0f}  {len(text) >> 10:4} KiB")


if __name__ == "__main__":
    given = [int(text) for text in sys.argv[1:]]
    main(*given, *(TOPICS, DEAD_LETTERS)[len(given) :])
