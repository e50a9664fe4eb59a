"""The application: identifies the login, renders pages, runs actions, and streams pages that change.

GET  /topics                               ──▶ the page
GET  /topics  Accept: text/event-stream    ──▶ its live part again and again, whenever it differs
POST /topics/purge  csrf=…                 ──▶ the action, then 303 to the page that shows what it did
"""

import asyncio
import logging
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

import popmq
from popmq import errors
from popmq_console.asking import Action, Ask, Page, local
from popmq_console.attempts import NAME_LETTERS, TooManyAttempts
from popmq_console.guards import BODY_BYTES_MAX, Guards, of_this_origin, origin
from popmq_console.logins import LOGINS_MAX, Login, Logins, new_cookie
from popmq_console.options import Options
from popmq_console.pages import ACTIONS, NAVIGATION, PAGES, offered
from popmq_console.views import FOLDER, address, environment

#: Pages that may be streamed at a time; a further one is shown, but is not refreshed.
STREAMS_MAX = 200
#: Of them with one access key, so that one takes no page of the others; a broker without keys has one login for all.
STREAMS_PER_KEY = 50
#: Seconds between two searches for logins that have reached one of their times.
SWEEP_S = 60.0
#: Pages of a topic, a group or a schedule by its name.
NAMED = ("/topic", "/group", "/schedule")
THEMES = ("auto", "light", "dark")
THEME_COOKIE = "popmq-theme"
EVENTS = "text/event-stream"
YEAR_S = 365 * 86400

log = logging.getLogger("popmq.console")

Answer = Callable[[Request], Awaitable[Response]]


class Console:
    """One console. `app` is the ASGI application.

    Routes are made from the tables of pages/. A page never changes anything, an action always ends with a redirection
    or a refusal: loading a page again repeats nothing.
    """

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        options.verify()
        self._options = options
        self._logins = Logins(self._connect, options.every_s, clock, LOGINS_MAX // max(len(options.brokers), 1))
        self._templates = environment(options.root)
        self._streams: Counter[str] = Counter()  # by the name of the access key
        #: Browsers accept a name that begins so only with Secure, Path=/ and no Domain.
        self._cookie = "__Host-popmq-console" if options.secure else "popmq-console"
        self._cookie += f"-{options.shown.slug}" if options.shown else ""
        routes = [
            self._route("/login", self._login_page, "GET"),
            self._route("/login", self._log_in, "POST"),
            self._route("/logout", self._log_out, "POST"),
            self._route("/theme", self._theme, "POST"),
            Mount("/static", StaticFiles(directory=FOLDER / "static"), name="static"),
            *(self._route(path, self._page(page, name), "GET") for path, (page, name) in PAGES.items()),
            *(self._route(path, self._action(action), "POST") for path, action in ACTIONS.items()),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[Middleware(Guards, options=options)],
            exception_handlers={404: self._no_page, 405: self._no_page},
            lifespan=lambda _: self.running(),
        )

    def _connect(self, name: str, secret: str) -> popmq.AsyncClient:
        options = self._options
        return popmq.AsyncClient(
            options.endpoint,
            client_id=f"console-{name}" if name else "console",
            timeouts=popmq.Timeouts.all(15.0),
            retry=popmq.Retry(reach=2.0),
            tls=options.tls,
            tls_ca=options.tls_ca,
            access_key=name or None,
            secret=secret or None,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """A context: what goes on beside the requests, and the end of all logins."""
        sweeping = asyncio.get_running_loop().create_task(self._sweep())
        yield
        sweeping.cancel()
        await self._logins.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            try:
                await self._logins.sweep()
            except Exception:
                log.exception("a login did not end as it should")

    def _route(self, path: str, answer: Answer, method: str) -> Route:
        """A route whose unexpected exceptions become a page with the navigation."""

        async def answered(request: Request) -> Response:
            try:
                response = await answer(request)
            except Exception:
                login = self._logins.known(self._cookie_of(request))
                return self._render("broken.html", request, login, 500, sentence=_logged(request))
            if (to := response.headers.get("location", "")).startswith("/"):
                response.headers["location"] = self._options.root + to
            return response

        return Route(path, answered, methods=[method])

    # ── The login ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _cookie_of(self, request: Request) -> str:
        return request.cookies.get(self._cookie, "")[:100]

    def _set_cookie(self, response: Response, cookie: str) -> None:
        response.set_cookie(
            self._cookie, cookie, path="/", secure=self._options.secure, httponly=True, samesite="strict"
        )

    async def _form(self, request: Request) -> dict[str, list[str]] | Response:
        """The fields of a form of our own pages; else the refusal.

        Read piece by piece: a body without a length is cut off at the same size as one that names it.
        """
        body = b""
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > BODY_BYTES_MAX:
                    return PlainTextResponse("The form is too large.\n", 413)
        except ClientDisconnect:
            return Response(status_code=400)
        try:
            form = parse_qs(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=5000)
        except ValueError:
            return PlainTextResponse("The form has too many fields.\n", 400)
        cookie, token = self._cookie_of(request), next(iter(form.get("csrf", ())), "")
        if not (cookie and of_this_origin(request, self._options) and self._logins.csrf_fits(cookie, token)):
            return self._render("refused.html", request, None, 403)
        return form

    # ── Login ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _login_page(self, request: Request) -> Response:
        to, ended = local(request.query_params.get("to", "/")), "ended" in request.query_params
        return self._render("login.html", request, None, sentence="", to=to, ended=ended)

    async def _log_in(self, request: Request) -> Response:
        form = await self._form(request)
        if isinstance(form, Response):
            return form
        name, secret, to = (next(iter(form.get(field, ())), "") for field in ("name", "secret", "to"))
        try:
            if not (0 < len(name.strip()) <= NAME_LETTERS and secret):
                raise errors.Unauthenticated("give the name of an access key and its secret")
            cookie = await self._logins.log_in(name.strip(), secret, origin(request, self._options))
        except errors.PopMQError as error:
            status = 401 if isinstance(error, errors.Unauthenticated) else 502
            if isinstance(error, TooManyAttempts):
                status = 429
            return self._render("login.html", request, None, status, sentence=str(error), to=local(to), ended=False)
        await self._logins.log_out(self._cookie_of(request))
        log.info("login key=%s", name.strip()[:64])
        response = RedirectResponse(local(to), 303)
        self._set_cookie(response, cookie)
        return response

    async def _log_out(self, request: Request) -> Response:
        form = await self._form(request)
        if isinstance(form, Response):
            return form
        await self._logins.log_out(self._cookie_of(request))
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._cookie, path="/", secure=self._options.secure, httponly=True, samesite="strict")
        return response

    async def _theme(self, request: Request) -> Response:
        form = await self._form(request)
        if isinstance(form, Response):
            return form
        theme, to = (next(iter(form.get(field, ())), "") for field in ("theme", "to"))
        response = RedirectResponse(local(to), 303)
        if theme in THEMES:
            secure = self._options.secure
            response.set_cookie(THEME_COOKIE, theme, YEAR_S, path="/", secure=secure, httponly=True, samesite="strict")
        return response

    # ── Pages and actions ────────────────────────────────────────────────────────────────────────────────────────────

    def _page(self, page: Page, name: str) -> Answer:
        async def show(request: Request) -> Response:
            live = EVENTS in request.headers.get("accept", "")
            try:
                login = await self._logins.find(self._cookie_of(request), used=not live)
                if login is None:
                    to = _login_address(self._here(request), ended=live)
                    event = _event("login", self._options.root + to)
                    return Response(event, media_type=EVENTS) if live else RedirectResponse(to, 303)
                ask = Ask(login, self._options, request.query_params, live=live)
                if live:
                    return self._stream(request, ask, page, name)
                values = await page(ask)
            except errors.PopMQError as error:
                return await self._failure(request, error)
            return self._render(name, request, login, _status(values.get("refusal")), **values)

        return show

    def _action(self, action: Action) -> Answer:
        async def act(request: Request) -> Response:
            form = await self._form(request)
            if isinstance(form, Response):
                return form
            back = local(next(iter(form.get("back", ())), "/"))
            try:
                login = await self._logins.find(self._cookie_of(request))
                if login is None:
                    return RedirectResponse(_login_address(back, ended=True), 303)
                outcome = await action(Ask(login, self._options, request.query_params, form))
            except errors.PopMQError as error:
                return await self._failure(request, error, back)
            login.numbers.forget()
            login.say("done", outcome.sentence)
            return RedirectResponse(outcome.to, 303)

        return act

    async def _failure(self, request: Request, error: errors.PopMQError, back: str = "") -> Response:
        """The page about a refusal of the broker, with its action."""
        if isinstance(error, errors.Unauthenticated):
            await self._logins.ask_again()
            return RedirectResponse("/login", 303)
        login, status = self._logins.known(self._cookie_of(request)), _status(error)
        heading = {403: "Not allowed", 404: "Not done" if back else "Not found"}.get(status, "Not done")
        away = isinstance(error, errors.Unavailable | errors.DeadlineExceeded) and not back
        if away:
            heading = "The broker does not answer"
        return self._render("failed.html", request, login, status, error=error, back=back, heading=heading, away=away)

    async def _no_page(self, request: Request, _: Exception) -> Response:
        """No page at this address: also at that of an action, which the browser shows after a refusal."""
        return self._render("nothing.html", request, self._logins.known(self._cookie_of(request)), 404)

    def _stream(self, request: Request, ask: Ask, page: Page, name: str) -> Response:
        key = ask.login.name
        if self._streams.total() >= STREAMS_MAX or (key and self._streams[key] >= STREAMS_PER_KEY):
            return PlainTextResponse("too many pages are open", 503)
        events = self._events(request, ask, page, name)
        return StreamingResponse(events, media_type=EVENTS, headers={"x-accel-buffering": "no"})

    async def _events(self, request: Request, ask: Ask, page: Page, name: str) -> AsyncIterator[str]:
        """The live block of a page whenever it differs from the one before; a comment otherwise, to notice an end.

        The last event of a login that has ended brings the browser to the login page.
        """
        self._streams[ask.login.name] += 1
        before = ""
        try:
            while self._logins.lasts(ask.login):
                try:
                    shown = self._live(request, ask.login, name, await page(ask))
                    event = "live"
                except errors.PopMQError as error:
                    if isinstance(error, errors.Unauthenticated):
                        await self._logins.ask_again()
                    shown, event = str(error), "trouble"
                except Exception:
                    yield _event("broken", _logged(request))
                    return
                yield _event(event, shown) if shown != before else ": still here\n\n"
                before = shown
                await asyncio.sleep(max(self._options.every_s, ask.login.numbers.pause_s))
            yield _event("login", self._options.root + _login_address(self._here(request), ended=True))
        finally:
            self._streams[ask.login.name] -= 1
            self._streams += Counter()  # drops the names that have none left

    # ── Templates ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _values(self, request: Request, login: Login | None, cookie: str) -> dict[str, Any]:
        theme = request.cookies.get(THEME_COOKIE, "auto")
        return {
            "current": _entry(request.url.path),
            "here": self._here(request),
            "csrf": self._logins.csrf(cookie) if cookie else "",
            "theme": theme if theme in THEMES else "auto",
            "themes": THEMES,
            "navigation": offered(login),
            "login": login,
            "endpoint": self._options.endpoint,
            "broker": self._options.name,
            "brokers": [(one.name, one.root + _kept(request)) for one in self._options.brokers],
            "version": popmq.__version__,
        }

    def _render(self, name: str, request: Request, login: Login | None, status: int = 200, **values: Any) -> Response:
        """A page; a browser without a cookie gets one, because the forms of the page need it."""
        cookie = self._cookie_of(request)
        fresh = "" if cookie else new_cookie()
        said = login.take_said() if login else []
        shared = self._values(request, login, cookie or fresh) | {"said": said}
        response = HTMLResponse(self._templates.get_template(name).render(shared | values), status)
        if fresh:
            self._set_cookie(response, fresh)
        return response

    def _here(self, request: Request) -> str:
        """The address of a page; of an answer to a form, which has none, the page of the form, else the first one."""
        if request.method == "GET":
            return request.url.path + (f"?{request.url.query}" if request.url.query else "")
        came_from = urlsplit(request.headers.get("referer", ""))
        path = came_from.path.removeprefix(self._options.root)
        return local(path + (f"?{came_from.query}" if came_from.query else ""))

    def _live(self, request: Request, login: Login, name: str, values: dict[str, Any]) -> str:
        """The part of a page between its two marks, and the marks; no text of a user can look like a mark."""
        shared = self._values(request, login, self._cookie_of(request)) | {"said": []}
        shown = self._templates.get_template(name).render(shared | values)
        return "<!--live-->" + shown.partition("<!--live-->")[2].partition("<!--/live-->")[0] + "<!--/live-->"


def _entry(path: str) -> str:
    """The entry of the navigation that a page belongs to: /topic and /topics/create belong to /topics."""
    root = "/" + path.split("/")[1]
    return next((address for address, *_ in NAVIGATION if address in (root, f"{root}s")), "/")


def _status(error: errors.PopMQError | None) -> int:
    """The status of an answer that shows this refusal."""
    if error is None:
        return 200
    if isinstance(error, errors.TryLater):
        return 503
    return 403 if isinstance(error, errors.Denied) else 404 if isinstance(error, errors.NotFound) else 400


def _kept(request: Request) -> str:
    """The page of another broker that a switch leads to: the same list; what has the same name, where names are alike.

    A message or a lease of one broker is none of another.
    """
    if request.url.path in NAMED and (name := request.query_params.get("name")):
        return address(request.url.path, name=name)
    return _entry(request.url.path)


def _login_address(to: str, ended: bool) -> str:
    """The address of the login that leads to a page; `ended`: it says that there was a login before."""
    return f"/login?to={quote(to, safe='/')}{'&ended' if ended else ''}"


def _logged(request: Request) -> str:
    """Logs the exception that is being handled; returns the sentence for the user, with its id in the log."""
    number = secrets.token_hex(4)
    log.exception("error %s of %s %s", number, request.method, ascii(request.url.path))
    return f"This page failed with error {number}."


def _event(name: str, text: str) -> str:
    """One server-sent event."""
    return f"event: {name}\n" + "".join(f"data: {line}\n" for line in text.splitlines()) + "\n"
