"""Several brokers in one console: each has its pages below a path of its own, its own logins and its own cookie.

    /at/prod/topics     ──▶ the Console of prod, as /topics. Its links and redirections lead below /at/prod again
    /at/staging/topics  ──▶ the Console of staging, as /topics
    /topics             ──▶ 307 to the first broker's; /static/… is the same for all

The broker is in the address and not in a cookie: a button pressed in one window must never act on the broker that
another window shows. Nothing is shared: a broker that is away, or a login that ends, concerns its own pages only.
"""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from popmq_console.app import Console
from popmq_console.guards import Guards
from popmq_console.options import AT, Options
from popmq_console.views import FOLDER


class Brokers:
    """The consoles of all brokers of the options, which are at least one. `app` is the ASGI application."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self._consoles = {one.slug: Console(options.at(one), clock) for one in options.brokers}
        self._first = options.brokers[0].root
        self._around = Starlette(
            routes=[
                Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
                Route("/{path:path}", self._to_first, methods=["GET"]),
            ],
            middleware=[Middleware(Guards, options=options)],
            lifespan=self._lifespan,
        )

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the process."""
        if scope["type"] == "http" and scope["path"].startswith(AT):
            slug, slash, rest = scope["path"].removeprefix(AT).partition("/")
            console = self._consoles.get(slug)
            if console is not None and slash:
                path = f"/{rest}"
                await console.app({**scope, "path": path, "raw_path": path.encode()}, receive, send)
                return
        await self._around(scope, receive, send)

    async def _to_first(self, request: Request) -> Response:
        """An address without a broker, such as an old bookmark; below /at/, that of a broker that is not offered."""
        path = "/" if request.url.path.startswith(AT) else request.url.path
        return RedirectResponse(f"{self._first}{path}" + (f"?{request.url.query}" if request.url.query else ""), 307)

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for console in self._consoles.values():
                await stack.enter_async_context(console.running())
            yield
