"""A broker with access keys and a console for each module, and a browser that keeps its cookies."""

import asyncio
import html
import http.client
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urlsplit

import pytest

import popmq
from popmq_server.embedded_broker import EmbeddedBroker

pytest.importorskip("starlette")

from popmq_console.numbers import Numbers
from popmq_console.options import Options
from popmq_console.serving import Serving

#: Made for the tests; they look for it on every page.
SECRET = "a-secret-for-these-tests-only"
KEYS = f"""
[operator]
secret = "{SECRET}"
allow = ["*"]
[reader]
secret = "{SECRET}-of-the-reader"
allow = ["receive:orders"]
connections = 9
calls_per_s = 5000
bytes_in_flight = "1MiB"
"""


class Seconds:
    """A clock that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(frozen=True)
class Answer:
    """The console's answer, after redirections."""

    status: int
    headers: dict[str, str]
    text: str
    path: str  # after redirections

    @property
    def csrf(self) -> str:
        found = re.search(r'name="csrf" value="(\w+)"', self.text)
        return found[1] if found else ""

    @property
    def plain(self) -> str:
        """The visible text of the page."""
        return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


class Browser:
    """Follows redirections, keeps cookies, and sends the token of the last page."""

    def __init__(self, url: str) -> None:
        self.netloc = urlsplit(url).netloc
        self.cookies = SimpleCookie()
        self.seen: list[Answer] = []

    @property
    def csrf(self) -> str:
        return next((answer.csrf for answer in reversed(self.seen) if answer.csrf), "")

    def _ask(self, method: str, path: str, body: str, headers: dict[str, str]) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        try:
            sent = {"Cookie": "; ".join(f"{name}={morsel.value}" for name, morsel in self.cookies.items())}
            sent |= {"Content-Type": "application/x-www-form-urlencoded"} if body else {}
            connection.request(method, path, body.encode(), sent | headers)
            response = connection.getresponse()
            for line in response.headers.get_all("set-cookie") or ():
                self.cookies.load(line)
            return (
                response.status,
                {name.lower(): value for name, value in response.headers.items()},
                str(response.read(), "utf-8", "replace"),
            )
        finally:
            connection.close()

    @contextmanager
    def follow(self, path: str) -> Iterator[Iterator[tuple[str, str]]]:
        """The events of an open page, as its script gets them: (name, data); comments have the name ""."""
        connection = http.client.HTTPConnection(self.netloc, timeout=30)
        cookies = "; ".join(f"{name}={morsel.value}" for name, morsel in self.cookies.items())
        connection.request("GET", path, headers={"Accept": "text/event-stream", "Cookie": cookies})
        response = connection.getresponse()
        assert response.headers["content-type"].startswith("text/event-stream")

        def events() -> Iterator[tuple[str, str]]:
            name, data = "", []
            while line := response.readline().decode():
                if line.startswith("event: "):
                    name = line.removeprefix("event: ").rstrip()
                elif line.startswith("data: "):
                    data.append(line.removeprefix("data: ").rstrip("\n"))
                elif line == "\n":
                    yield name, "\n".join(data)
                    name, data = "", []

        try:
            yield events()
        finally:
            response.close()
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        status, answered, text = self._ask("GET", path, "", headers)
        if status in (303, 307):
            return self.get(answered["location"])
        self.seen.append(Answer(status, answered, text, path))
        return self.seen[-1]

    def post(self, path: str, csrf: str | None = None, headers: dict[str, str] | None = None, **form: object) -> Answer:
        """Sends a form as the page would; lists are repeated fields."""
        fields = {"csrf": self.csrf if csrf is None else csrf, **form}
        status, answered, text = self._ask("POST", path, urlencode(fields, doseq=True), headers or {})
        if status in (303, 307):
            return self.get(answered["location"])
        self.seen.append(Answer(status, answered, text, path))
        return self.seen[-1]

    def log_in(self, name: str, secret: str) -> Answer:
        self.get("/login")
        return self.post("/login", name=name, secret=secret, to="/")


@contextmanager
def console(endpoint: str, clock: Callable[[], float] = time.monotonic, **options: object) -> Iterator[str]:
    """A console in a thread; its address. `clock`: of its logins."""
    made: list[Serving] = []
    ready = threading.Event()

    async def serve() -> None:
        made.append(Serving(Options(endpoint, port=0, **options), clock))  # type: ignore[arg-type]
        ready.set()
        await made[0].run()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="console", daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield made[0].urls[0]
    finally:
        made[0].stop()
        thread.join(30)
        assert not thread.is_alive()


@dataclass
class Site:
    """A broker with keys, its console, and a client that may do everything."""

    broker: EmbeddedBroker
    url: str
    client: popmq.Client

    def browser(self) -> Browser:
        return Browser(self.url)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("console")
    keys = folder / "keys.toml"
    keys.touch(0o600)
    keys.write_text(KEYS)
    with (
        EmbeddedBroker(folder / "data", sync="none", access_keys=keys) as broker,
        console(broker.endpoint, every_s=0.05) as url,
        popmq.Client(broker.endpoint, access_key="operator", secret=SECRET) as client,
    ):
        yield Site(broker, url, client)


@pytest.fixture(scope="module")
def operator(site: Site) -> Browser:
    """Logged in with a key that may do everything."""
    browser = site.browser()
    assert browser.log_in("operator", SECRET).status == 200
    return browser


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page reads the numbers again, so that it shows changes that the test has made without the console."""
    monkeypatch.setattr(Numbers, "_good_for_s", lambda numbers, stats: 0.0)


@pytest.fixture(scope="module")
def reader(site: Site) -> Browser:
    """Logged in with a key that may only read the topic orders."""
    browser = site.browser()
    assert browser.log_in("reader", f"{SECRET}-of-the-reader").status == 200
    return browser
