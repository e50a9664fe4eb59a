"""Logins: a random id in the browser's cookie identifies a client with the person's access key.

The cookie holds no secret of the broker. The id is kept here as a hash, and the secret only inside the SDK's client.
A login ends after IDLE_S without a request of its user, after LIFE_S in any case, at the logout, with this process,
and when its key or all keys have too many newer ones. An open page that only updates itself does not prolong it.
"""

import contextlib
import hashlib
import hmac
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import popmq
from popmq_console.attempts import Attempts
from popmq_console.numbers import Numbers
from popmq_console.redrives import Redrive

IDLE_S = 30 * 60.0
LIFE_S = 12 * 3600.0
#: A login holds a connection to the broker, which allows one address 1,000 by default.
LOGINS_MAX = 400
#: Logins with one key; a new one ends the one that was not used for the longest time.
LOGINS_PER_KEY = 20
#: Seconds that a page shows the buttons of the rights that the key had: they change with the broker's file of keys.
RIGHTS_S = 30.0
#: Seconds until a broker that did not say what it lacks is asked again.
SILENT_S = 5.0
#: The engine of gateways, as GetInfo names it.
CLUSTER_ENGINE = "rocketmq"

Connect = Callable[[str, str], popmq.AsyncClient]


@dataclass(slots=True)
class Login:
    """One person at one browser.

    `name`: of the access key; "" when the broker asks for none, and then all browsers share one login: there is nothing
    to tell apart. `open` turns false at the end, which ends the pages that follow the numbers. `admin`, `sends`:
    whether pages offer what needs the right admin, or one to send; the broker decides about each call. `info`: what the
    broker's engine lacks; None until it has said so.
    """

    name: str
    client: popmq.AsyncClient
    numbers: Numbers
    began_s: float
    seen_s: float
    said: list[tuple[str, str]] = field(default_factory=list)  # (kind, sentence) for the next page
    redrives: dict[str, Redrive] = field(default_factory=dict)  # by group
    open: bool = True
    admin: bool = True
    sends: bool = True
    info: popmq.BrokerInfo | None = None
    asked_s: float = -math.inf  # when the broker was asked for the rights, and for `info`

    def has(self, capability: str) -> bool:
        """Whether pages offer what needs this capability of docs/capabilities.md."""
        return self.info is None or capability not in self.info.lacking

    @property
    def is_cluster(self) -> bool:
        """Whether the broker is a gateway to a cluster of brokers."""
        return self.info is not None and self.info.engine == CLUSTER_ENGINE

    def say(self, kind: str, sentence: str) -> None:
        """Shows a sentence on the next page; `kind` is done or failed."""
        self.said.append((kind, sentence))
        del self.said[:-5]

    def take_said(self) -> list[tuple[str, str]]:
        """Removes and returns the sentences for the current page."""
        said, self.said = self.said, []
        return said


class Logins:
    """All logins of this process. `clock`: seconds that only grow.

    They are in memory only. After a restart every user has to log in again, which is the price for storing no secret.
    """

    def __init__(
        self,
        connect: Connect,
        every_s: float,
        clock: Callable[[], float] = time.monotonic,
        logins_max: int = LOGINS_MAX,
    ) -> None:
        self._connect = connect
        self._logins_max = logins_max
        self._every_s = every_s
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._by_hash: dict[bytes, Login] = {}
        self._attempts = Attempts(clock)
        self._everybody: Login | None = None
        #: Whether the broker asks for keys; None before it has answered, and after it has refused a call without one.
        self.keys_needed: bool | None = None

    def csrf(self, cookie: str) -> str:
        """The token of the forms of one browser.

        It is computed from the cookie with a key of this process: nothing has to be stored for browsers that only
        look at the login, and a token of one browser is of no use in another.
        """
        return hmac.new(self._key, cookie.encode(), "sha256").hexdigest()

    def csrf_fits(self, cookie: str, token: str) -> bool:
        """In constant time."""
        return hmac.compare_digest(self.csrf(cookie).encode(), token.encode())

    async def find(self, cookie: str, used: bool = True) -> Login | None:
        """The login of a cookie; on a broker without keys the one that all browsers share.

        `used`: whether the request is of a person, not of a page that updates itself.
        """
        if await self._asks_for_keys():
            return await self._named(cookie, used)
        if self._everybody is None:
            self._everybody = self._made("", "")
        await self._look_again(self._everybody)
        return self._everybody

    async def _asks_for_keys(self) -> bool:
        """Asks the broker; the answer stays until `ask_again`. Raises PopMQError while there is no broker."""
        if self.keys_needed is None:
            async with self._connect("", "") as client:
                try:
                    await client.broker.stats()
                    self.keys_needed = False
                except popmq.errors.Unauthenticated:
                    self.keys_needed = True
        return self.keys_needed

    async def ask_again(self) -> None:
        """Ends the login that all browsers share, if there is one: the broker has refused it, and so has keys now."""
        if shared := self._everybody:
            self._everybody = self.keys_needed = None
            await _close(shared)

    async def _named(self, cookie: str, used: bool) -> Login | None:
        found = self._by_hash.get(_hash(cookie))
        if found is None:
            return None
        if not self.lasts(found):
            await self.sweep()
            return None
        if used:
            found.seen_s = self._clock()
            await self._look_again(found)
        return found

    async def _look_again(self, login: Login) -> None:
        """Asks again if it is time to. A broker that does not answer is the matter of the page's own calls."""
        if self._clock() - login.asked_s >= (RIGHTS_S if login.info else SILENT_S):
            with contextlib.suppress(popmq.PopMQError):
                await self._look(login)

    async def _look(self, login: Login) -> None:
        """Asks the broker what it lacks, and for the rights of the key. Raises PopMQError."""
        login.asked_s = self._clock()
        if login.name:
            known = await login.client.access_keys.list()
            own = next((one.allow for one in known.access_keys if one.name == known.caller), ())
            login.admin = not known.enabled or not {"admin", "*"}.isdisjoint(own)
            login.sends = not known.enabled or any(right == "*" or right.startswith("send") for right in own)
        login.info = await login.client.info()

    def known(self, cookie: str) -> Login | None:
        """The login of a cookie, without a call to the broker and without counting as use."""
        return self._everybody or self._by_hash.get(_hash(cookie))

    def lasts(self, login: Login) -> bool:
        """Whether a login has neither ended nor reached one of its times."""
        now_s = self._clock()
        timely = now_s - login.seen_s <= IDLE_S and now_s - login.began_s <= LIFE_S
        return login.open and (timely or login is self._everybody)

    async def sweep(self) -> None:
        """Ends the logins that have reached one of their times, also those that no request asks for."""
        for hashed, login in list(self._by_hash.items()):
            if not self.lasts(login):
                await self._end(hashed)

    async def log_in(self, name: str, secret: str, address: str) -> str:
        """The cookie of a new login. Raises Unauthenticated, TooManyAttempts, and other refusals of the broker.

        The key proves itself by a call that every key may make. The cookie is always a new one: an id that an attacker
        planted in the browser before never becomes a login.
        """
        take_back = self._attempts.begin(address, name)
        login = self._made(name, secret)
        try:
            await self._look(login)
        except BaseException as error:
            if isinstance(error, popmq.errors.TryLater):
                take_back()  # the broker did not say that the secret is wrong
            await _close(login)
            raise
        take_back()
        cookie = new_cookie()
        self._by_hash[_hash(cookie)] = login
        await self._make_room(name)
        return cookie

    async def _make_room(self, name: str) -> None:
        """Ends the logins beyond the limits: first those of the key, so that one key takes no room of the others."""
        await self._end_oldest([one for one, login in self._by_hash.items() if login.name == name], LOGINS_PER_KEY)
        await self._end_oldest(list(self._by_hash), self._logins_max)

    async def _end_oldest(self, hashes: list[bytes], most: int) -> None:
        hashes.sort(key=lambda hashed: self._by_hash[hashed].seen_s)
        for hashed in hashes[: max(len(hashes) - most, 0)]:
            await self._end(hashed)

    def _made(self, name: str, secret: str) -> Login:
        client = self._connect(name, secret)
        return Login(name, client, Numbers(client, self._every_s), self._clock(), self._clock())

    async def log_out(self, cookie: str) -> None:
        """Ends the login of a cookie, if there is one."""
        await self._end(_hash(cookie))

    async def _end(self, hashed: bytes) -> None:
        if login := self._by_hash.pop(hashed, None):
            await _close(login)

    async def close(self) -> None:
        """Ends all."""
        for hashed in list(self._by_hash):
            await self._end(hashed)
        if self._everybody:
            await _close(self._everybody)


async def _close(login: Login) -> None:
    login.open = False
    for redrive in login.redrives.values():
        await redrive.stop()
    await login.client.close()


def new_cookie() -> str:
    """A random id for a browser."""
    return secrets.token_urlsafe(32)


def _hash(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode()).digest()
