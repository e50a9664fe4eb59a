"""Access keys: who calls, how a call proves it, and what a key allows. docs/security.md is the page for operators.

    x-mq-date-time, authorization ──▶ Keys.caller ──▶ CALLER ──▶ guarded.py, before every command of the engine
    --access-keys FILE ──▶ Keys         the key, or why there is none; of this call and of the tasks that it starts

The scheme is that of the RocketMQ 5 clients, for both faces: HMAC-SHA1 with the secret over the bytes of x-mq-date-time
as they came. Clients sign a local time as if it were UTC, so no clock is compared: whoever reads the headers on the way
can use them, therefore TLS. The secret is in memory and in the file, and in no text that this module makes.
"""

import contextvars
import hmac
import logging
import os
import pathlib
import re
import secrets
import stat
import tomllib
from collections.abc import Iterable
from typing import Any, NamedTuple

from popmq_server.access.file_watch import version
from popmq_server.clock import stopwatch
from popmq_server.errors import Refused, StartError

log = logging.getLogger("popmq.access")

ALGORITHM = "MQv2-HMAC-SHA1"
SECRET_LETTERS_MIN = 8
#: How often the file of the keys is looked at, in seconds, while calls come.
LOOK_EVERY_S = 1.0
#: Signatures that were proved, and answers to "may it?": forgotten all at once when there are so many.
REMEMBERED_MAX = 4096

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PATTERN = r"[A-Za-z0-9_.%+\-]+\*?|\*"
_GRANT = re.compile(rf"(send|receive)(?::({_PATTERN})(?:/({_PATTERN}))?)?|admin|\*")
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{40}")


class Need(NamedTuple):
    """What a command takes. `topic`, `group`: "" = one that the key may, whichever it is.

    `permission`: send, receive, admin; describe: any right on the topic; known: any key. `or_admin`: admin will do too.
    """

    permission: str
    topic: str = ""
    group: str = ""
    or_admin: bool = False

    def __str__(self) -> str:
        """As it could stand in `allow`."""
        if self.permission in ("send", "describe"):
            return f"send:{self.topic or '*'}"
        if self.permission == "receive":
            return f"receive:{self.topic or '*'}/{self.group or '*'}"
        return self.permission


class Grant(NamedTuple):
    """One entry of `allow`: a permission, and a name or the beginning of names (`ord*`) each.

    admin is for operators and their tools: it neither sends nor takes messages away from anybody, but looks at all.
    """

    permission: str
    topic: str = "*"
    group: str = "*"

    def covers(self, need: Need) -> bool:
        """Whether it is enough for `need`."""
        if self.permission == "*":
            return need.permission in ("send", "receive", "admin", "describe")
        if self.permission == "admin":
            return need.or_admin or need.permission in ("admin", "describe")
        if need.permission != "describe" and need.permission != self.permission:
            return False
        return _matches(self.topic, need.topic) and _matches(self.group, need.group)


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name; no name asks whether there is any that it covers, and there always is."""
    return not name or pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def read_grant(text: str) -> Grant:
    """An entry of `allow`. Raises ValueError with what could stand there."""
    found = _GRANT.fullmatch(text)
    if found is None or (found[1] == "send" and found[3]):
        raise ValueError(f"{text!r} is not send:TOPIC, receive:TOPIC/GROUP, admin or *; names may end with *")
    return Grant(found[1] or text, found[2] or "*", found[3] or "*")


class Key:
    """One access key. Its secret is not shown by anything.

    It never changes: another secret or another grant is another Key, so that what was decided stays right.
    """

    __slots__ = ("_decided", "_secret", "grants", "name")

    def __init__(self, name: str, secret: str, grants: Iterable[Grant]) -> None:
        self.name = name
        self.grants = tuple(grants)
        self._secret = secret.encode()
        self._decided: dict[Need, bool] = {}

    def __repr__(self) -> str:
        return f"<access key {self.name}>"

    def same(self, other: "Key") -> bool:
        """Whether a file that was read again says the same of it."""
        return (self.name, self._secret, self.grants) == (other.name, other._secret, other.grants)

    def signed(self, date_time: str, signature: bytes) -> bool:
        """Whether the signature is this key's; takes the same time for every wrong one."""
        return hmac.compare_digest(hmac.digest(self._secret, date_time.encode(), "sha1"), signature)

    def may(self, need: Need) -> bool:
        """Whether one of its grants is enough."""
        decided = self._decided.get(need)
        if decided is None:
            if need.permission == "known":
                return True
            if len(self._decided) >= REMEMBERED_MAX:
                self._decided.clear()
            decided = self._decided[need] = any(grant.covers(need) for grant in self.grants)
        return decided


#: Who makes the call that runs: a key; why there is none; None where nobody asks, since there are no access keys.
CALLER: contextvars.ContextVar[Key | Refused | None] = contextvars.ContextVar("popmq_caller", default=None)


def caller() -> Key | None:
    """Who calls; None = nobody asks. Raises Refused UNAUTHENTICATED. A face asks this first, whatever the call does."""
    found = CALLER.get()
    if isinstance(found, Refused):
        raise found
    return found


def check(need: Need) -> None:
    """For what reaches no command of the engine. Raises Refused UNAUTHENTICATED, PERMISSION_DENIED."""
    key = caller()
    if key is not None and not key.may(need):
        raise denied(key, need)


def denied(key: Key, need: Need) -> Refused:
    """The cure is a line in the broker's file."""
    return Refused(
        "PERMISSION_DENIED",
        f"the access key {key.name!r} does not allow this call",
        action=f'call with another key, or add "{need}" to what the broker\'s access keys allow this one',
    )


def unauthenticated(why: str) -> Refused:
    """The same answer to an unknown name and to a wrong secret: names are not told to who has none."""
    return Refused(
        "UNAUTHENTICATED", why, action="call with an access key of this broker, and sign with its secret as it is now"
    )


class Keys:
    """The access keys of a file, read again when it is replaced. For one event loop."""

    def __init__(self, path: pathlib.Path) -> None:
        """Raises StartError with the cure."""
        self._path = path
        self._seen = version(path)
        self._looked_s = stopwatch()
        self._proved: dict[tuple[str, str], Key] = {}
        self._stranger = Key("", secrets.token_hex(), ())
        try:
            self._keys = read(path)
        except ValueError as error:
            raise StartError(f"the access keys cannot be used: {error}") from None

    def caller(self, authorization: str, date_time: str) -> Key:
        """The key that signed these headers. Raises Refused UNAUTHENTICATED."""
        if stopwatch() - self._looked_s >= LOOK_EVERY_S:
            self._look_again()
        key = self._proved.get((authorization, date_time))
        if key is None:
            key = self._prove(authorization, date_time)
            if len(self._proved) >= REMEMBERED_MAX:
                self._proved.clear()
            self._proved[authorization, date_time] = key
        return key

    def holds(self, key: Key) -> bool:
        """Whether the key is still what the file says: a stream may be older than the file."""
        return self._keys.get(key.name) is key

    def _prove(self, authorization: str, date_time: str) -> Key:
        """The whole way. A name that is not there is compared too, with a secret that nobody has: no answer comes
        faster, and a caller learns no names by a stopwatch.
        """
        if not authorization:
            raise unauthenticated("this broker takes calls with an access key only, and none came with this one")
        name, signature = _parts(authorization)
        if not date_time or signature is None:
            raise unauthenticated(f"the headers authorization and x-mq-date-time do not hold a {ALGORITHM} signature")
        key = self._keys.get(name)
        if not (key or self._stranger).signed(date_time, signature) or key is None:
            raise unauthenticated("there is no such access key, or its secret is another one")
        return key

    def _look_again(self) -> None:
        """A file that was replaced counts from here on; one that is broken is told once, and changes nothing."""
        self._looked_s = stopwatch()
        seen = version(self._path)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            read_now = read(self._path)
        except ValueError as error:
            log.error("the access keys were replaced by what cannot be used, the old ones stay: %s", error)
            return
        for name, old in self._keys.items():
            if name in read_now and read_now[name].same(old):
                read_now[name] = old
        self._keys = read_now
        self._proved.clear()
        log.info("the access keys of %s were replaced: %d keys", self._path, len(self._keys))


def _parts(authorization: str) -> tuple[str, bytes | None]:
    """(name, signature) of `MQv2-HMAC-SHA1 Credential=NAME[/…], SignedHeaders=…, Signature=HEX`; None: it is none."""
    algorithm, _, rest = authorization.partition(" ")
    items = dict(item.strip().partition("=")[::2] for item in rest.split(","))
    signature = items.get("Signature", "")
    # Hex of either case, as clients differ; a value is cut at the first "=" only, as the reference cuts it.
    if algorithm != ALGORITHM or not _SIGNATURE.fullmatch(signature):
        return "", None
    return items.get("Credential", "").partition("/")[0], bytes.fromhex(signature)


# ── The file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: pathlib.Path) -> dict[str, Key]:
    """The keys of a file by name. Raises ValueError: one sentence, which quotes no secret."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if mode & 0o077:
                raise ValueError(f"others may read {path} (mode {mode:o}): chmod 600 {path}")
            tables = tomllib.loads(file.read().decode())
    except OSError as error:
        raise ValueError(f"{path}: {error.strerror}; name a file that is there with --access-keys") from None
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} is not TOML: {error}") from None
    if not tables:
        raise ValueError(f"{path} holds no key: popmq access-key new NAME --allow admin >> {path}")
    return {name: _key(path, name, table) for name, table in tables.items()}


def _key(path: pathlib.Path, name: str, table: Any) -> Key:
    """One table of the file. Raises ValueError."""
    if not isinstance(table, dict) or set(table) != {"secret", "allow"}:
        raise ValueError(f"{path}: [{name}] is not a table with secret and allow, and nothing else")
    secret, allow = table["secret"], table["allow"]
    if not isinstance(secret, str) or len(secret) < SECRET_LETTERS_MIN:
        raise ValueError(f"{path}: the secret of [{name}] is not a text of at least {SECRET_LETTERS_MIN} letters")
    if not isinstance(allow, list) or not all(isinstance(text, str) for text in allow):
        raise ValueError(f"{path}: allow of [{name}] is not a list of texts")
    try:
        return Key(check_name(name), secret, map(read_grant, allow))
    except ValueError as error:
        raise ValueError(f"{path}: [{name}]: {error}") from None


def check_name(name: str) -> str:
    """The name of a key. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name has 1–64 letters, digits, '_' and '-'")
    return name


def stanza(name: str, allow: Iterable[str]) -> str:
    """A new key with a random secret, as it stands in the file. Raises ValueError for what cannot stand there."""
    texts = list(allow)
    for text in texts:
        read_grant(text)
    quoted = ", ".join(f'"{text}"' for text in texts)
    return f'[{check_name(name)}]\nsecret = "{secrets.token_urlsafe(32)}"\nallow = [{quoted}]\n'
