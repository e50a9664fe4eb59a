"""The checks of every request before a page is made: the host name, the size of the body, and the headers back.

Host that is not an address, localhost or the public name  ──▶ 421: another site's name that points here (DNS rebinding)
a body over BODY_BYTES_MAX                              ──▶ 413
every answer                                            ──▶ HEADERS: own scripts only, no frames, nothing cached

Names are compared because an address like 127.0.0.1 is reachable from every page that the person's browser has open: a
foreign page may let its own name point here, and would then count as the same origin. An address in the URL cannot be
such a name. Cookies are SameSite=Strict, forms carry a token, and browsers say where a form comes from; each of the
three would be enough.
"""

import contextlib
import ipaddress
import platform

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from popmq_console.attempts import counted
from popmq_console.options import Options

BODY_BYTES_MAX = 256 << 10
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
STRICT_TRANSPORT = "max-age=31536000"


class Guards:
    """Around the whole application, so that no route, no static file and no error page is without the headers.

    The policy names no inline script and no inline style: the content of a message can be shown, never run.
    """

    def __init__(self, app: ASGIApp, options: Options) -> None:
        self._app = app
        self._options = options
        self._names = {"localhost", platform.node().lower(), options.public_host, *map(str.lower, options.hosts)} - {""}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": self._headers(message["headers"])}
            await send(message)

        refused = self._refusal(Request(scope))
        await (refused or self._app)(scope, receive, guarded)

    def _headers(self, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """Adds our headers; those of the answer itself take precedence."""
        given = {name.lower() for name, _ in headers}
        ours = HEADERS | ({"strict-transport-security": STRICT_TRANSPORT} if self._options.secure else {})
        more = [(name.encode(), value.encode()) for name, value in ours.items()]
        return [*headers, *((name, value) for name, value in more if name not in given)]

    def _refusal(self, request: Request) -> Response | None:
        if not self._known(request.url.hostname or ""):
            sentence = "This console does not serve that host name. Start it with --public-url.\n"
            return PlainTextResponse(sentence, 421)
        length = request.headers.get("content-length", "0")
        if request.method == "POST" and not (length.isascii() and length.isdecimal() and int(length) <= BODY_BYTES_MAX):
            return PlainTextResponse("The form is too large.\n", 413)
        return None

    def _known(self, host: str) -> bool:
        """Whether browsers may use this host name. An address cannot be another site's name for this machine."""
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return host.lower() in self._names
        return True


def of_this_origin(request: Request, options: Options) -> bool:
    """Whether a form was sent by a page of this console, as far as the browser says.

    A program that sends neither header is not a browser and has no other user's cookie. It passes; the token decides.
    """
    origin = request.headers.get("origin")
    site = request.headers.get("sec-fetch-site", "same-origin")
    if site not in ("same-origin", "none"):
        return False
    own = options.public_url.rstrip("/") or f"{request.url.scheme}://{request.url.netloc}"
    return origin in (None, own)


def origin(request: Request, options: Options) -> str:
    """The address of the browser, as attempts to log in are counted.

    With a public URL there is a proxy in front, which names the browser last in X-Forwarded-For. Only there is the
    header read: without a proxy, a browser could name any address in it.
    """
    chain = ",".join(request.headers.getlist("x-forwarded-for")) if options.public_url else ""
    for host in (chain.rpartition(",")[2].strip(), request.client.host if request.client else ""):
        with contextlib.suppress(ValueError):
            return counted(host)
    return ""
