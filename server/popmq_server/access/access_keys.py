"""Access keys: who calls, how a call proves it, and what a key allows. docs/security.md is the operators' guide.

    x-mq-date-time, authorization ──▶ Keys.caller ──▶ CALLER ──▶ guarded.py, before every command of the engine
    --access-keys FILE ──▶ Keys         the key, or the refusal; for this call and the tasks that it starts

Both protocols use the scheme of the RocketMQ 5 clients: HMAC-SHA1 with the secret over the bytes of x-mq-date-time as
received. Clients sign a local time as if it were UTC, so the broker compares no clock: whoever intercepts the headers
can replay them, therefore use TLS. The secret is in memory and in the file, and in no text that this module makes.
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
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any, NamedTuple

from popmq_server.access.file_watch import version
from popmq_server.clock import SystemClock, stopwatch
from popmq_server.errors import Refused, StartError

log = logging.getLogger("popmq.access")

ALGORITHM = "MQv2-HMAC-SHA1"
SECRET_CHARACTERS_MIN = 8
#: Secrets of a key: the old and the new one, while clients change over.
SECRETS_MAX = 2
#: The end of a key that has none; later than any time of the wall clock.
NEVER_MS = 1 << 63
#: Minimum interval between checks of the key file, in seconds; calls trigger them.
LOOK_EVERY_S = 1.0
#: Size of each cache (proved signatures, a key's decisions); a full cache is cleared.
REMEMBERED_MAX = 4096

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_PATTERN = r"[A-Za-z0-9_.%+\-]+\*?|\*"
_GRANT = re.compile(rf"(send|receive)(?::({_PATTERN})(?:/({_PATTERN}))?)?|admin|\*")
_SIGNATURE = re.compile(r"[0-9A-Fa-f]{40}")


class Need(NamedTuple):
    """A permission that a command needs. `topic`, `group`: "" = any that the key allows.

    `permission`: send, receive, admin; describe: any right on the topic; known: any key. `or_admin`: or admin.
    """

    permission: str
    topic: str = ""
    group: str = ""
    or_admin: bool = False

    def __str__(self) -> str:
        """As an entry of `allow`."""
        if self.permission in ("send", "describe"):
            return f"send:{self.topic or '*'}"
        if self.permission == "receive":
            return f"receive:{self.topic or '*'}/{self.group or '*'}"
        return self.permission


class Grant(NamedTuple):
    """One entry of `allow`: a permission with a topic and a group, each a name, a prefix (`ord*`) or `*`.

    admin is for operators and their tools: it reads everything, but neither sends messages nor takes any.
    """

    permission: str
    topic: str = "*"
    group: str = "*"

    def __str__(self) -> str:
        """As an entry of `allow`."""
        if self.permission in ("admin", "*"):
            return self.permission
        names = self.topic if self.group == "*" else f"{self.topic}/{self.group}"
        return self.permission if names == "*" else f"{self.permission}:{names}"

    def covers(self, need: Need) -> bool:
        """Whether the grant suffices for `need`."""
        if self.permission == "*":
            return need.permission in ("send", "receive", "admin", "describe")
        if self.permission == "admin":
            return need.or_admin or need.permission in ("admin", "describe")
        if need.permission != "describe" and need.permission != self.permission:
            return False
        return _matches(self.topic, need.topic) and _matches(self.group, need.group)


def _matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name; true for no name, since every pattern covers some name."""
    return not name or pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def read_grant(text: str) -> Grant:
    """Parses an entry of `allow`. Raises ValueError that lists the valid forms."""
    found = _GRANT.fullmatch(text)
    if found is None or (found[1] == "send" and found[3]):
        raise ValueError(f"{text!r} is not send:TOPIC, receive:TOPIC/GROUP, admin or *; names may end with *")
    return Grant(found[1] or text, found[2] or "*", found[3] or "*")


class Key:
    """One access key. No output shows its secret.

    Immutable but for secrets that are added: changed grants make another Key, so cached decisions stay valid.
    """

    __slots__ = ("_decided", "_secrets", "expires_ms", "grants", "name")

    def __init__(self, name: str, secrets: Iterable[str], grants: Iterable[Grant], expires_ms: int = NEVER_MS) -> None:
        self.name = name
        self.grants = tuple(grants)
        self.expires_ms = expires_ms
        self._secrets = tuple(secret.encode() for secret in secrets)
        self._decided: dict[Need, bool] = {}

    def __repr__(self) -> str:
        return f"<access key {self.name}>"

    @property
    def secrets(self) -> int:
        """How many secrets are accepted: two during a rotation."""
        return len(self._secrets)

    def same(self, other: "Key") -> bool:
        """Whether the other key has the same name, secrets, grants and end."""
        return self._secrets == other._secrets and self._same_rights(other)

    def _same_rights(self, other: "Key") -> bool:
        mine = self.name, self.grants, self.expires_ms
        return mine == (other.name, other.grants, other.expires_ms)

    def take(self, other: "Key") -> bool:
        """Takes over the secrets of a key that differs by more secrets only; returns whether it does.

        So a rotation, which adds a secret, ends no stream. A key that loses a secret is another key.
        """
        if not (self._same_rights(other) and set(self._secrets) <= set(other._secrets)):
            return False
        self._secrets = other._secrets
        return True

    def signed(self, date_time: str, signature: bytes) -> bool:
        """Whether the signature is this key's; compares in constant time."""
        made = [hmac.digest(secret, date_time.encode(), "sha1") for secret in self._secrets]
        # All are compared: the time must not tell which secret it was.
        return sum(hmac.compare_digest(one, signature) for one in made) > 0

    def may(self, need: Need) -> bool:
        """Whether one of its grants suffices."""
        decided = self._decided.get(need)
        if decided is None:
            if need.permission == "known":
                return True
            if len(self._decided) >= REMEMBERED_MAX:
                self._decided.clear()
            decided = self._decided[need] = any(grant.covers(need) for grant in self.grants)
        return decided


#: The caller of the running call: a key, or the refusal; None where there are no access keys.
CALLER: contextvars.ContextVar[Key | Refused | None] = contextvars.ContextVar("popmq_caller", default=None)


def caller() -> Key | None:
    """The caller's key; None without access keys. Raises Refused UNAUTHENTICATED."""
    found = CALLER.get()
    if isinstance(found, Refused):
        raise found
    return found


def check(need: Need) -> None:
    """Checks calls that run no command of the engine. Raises Refused UNAUTHENTICATED, PERMISSION_DENIED."""
    key = caller()
    if key is not None and not key.may(need):
        raise denied(key, need)


def denied(key: Key, need: Need) -> Refused:
    """The refusal names the grant that is missing in the broker's file."""
    return Refused(
        "PERMISSION_DENIED",
        f"the access key {key.name!r} does not allow this call",
        action=f'call with another key, or add "{need}" to what the broker\'s access keys allow this one',
    )


def unauthenticated(why: str) -> Refused:
    """`why` is the same for an unknown name and a wrong secret, so that callers cannot probe for names."""
    return Refused(
        "UNAUTHENTICATED", why, action="call with an access key of this broker, and sign with its secret as it is now"
    )


class Keys:
    """The access keys of a file, read again when it is replaced. For one event loop."""

    def __init__(self, path: pathlib.Path, wall_ms: Callable[[], int] | None = None) -> None:
        """`wall_ms`: the machine's clock, with which the end of a key is compared. Raises StartError with the cure."""
        self._path = path
        self._wall_ms = wall_ms or SystemClock().wall_ms
        self._seen = version(path)
        self._looked_s = stopwatch()
        self._proved: dict[tuple[str, str], Key] = {}
        self._stranger = Key("", [secrets.token_hex()], ())
        try:
            self._keys = read(path)
        except ValueError as error:
            raise StartError(f"the access keys cannot be used: {error}") from None

    def caller(self, authorization: str, date_time: str) -> Key:
        """The key that signed these headers. Raises Refused UNAUTHENTICATED."""
        if stopwatch() - self._looked_s >= LOOK_EVERY_S:
            self.reload()
        key = self._proved.get((authorization, date_time))
        if key is None:
            key = self._prove(authorization, date_time)
            if len(self._proved) >= REMEMBERED_MAX:
                self._proved.clear()
            self._proved[authorization, date_time] = key
        if self._wall_ms() >= key.expires_ms:
            raise unauthenticated(f"the time of the access key {key.name!r} has run out")
        return key

    def holds(self, key: Key) -> bool:
        """Whether the file still contains this key: a stream may be older than the file."""
        return self._keys.get(key.name) is key and self._wall_ms() < key.expires_ms

    def listed(self) -> list[Key]:
        """All keys of the file, by name."""
        return sorted(self._keys.values(), key=lambda key: key.name)

    def _prove(self, authorization: str, date_time: str) -> Key:
        """Verifies a signature. For an unknown name it compares with a random secret, so that the response time does
        not reveal which names exist.
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

    def reload(self) -> str:
        """Loads the file if it was replaced; returns what changed. An unusable file is logged, the old keys stay."""
        self._looked_s = stopwatch()
        seen = version(self._path)
        if seen == self._seen:
            return ""
        self._seen = seen
        try:
            read_now = read(self._path)
        except ValueError as error:
            log.error("the new access keys cannot be used; the old ones stay in use: %s", error)
            return ""
        change = f"the access keys of {self._path} were replaced: {_difference(self._keys, read_now)}"
        for name, old in self._keys.items():
            if name in read_now and old.take(read_now[name]):
                read_now[name] = old
        self._keys = read_now
        self._proved.clear()
        log.info("%s", change)
        return change


def _difference(before: dict[str, Key], after: dict[str, Key]) -> str:
    """What a new file changed, by the names of keys."""
    changed = {name for name in before.keys() & after.keys() if not before[name].same(after[name])}
    kinds = {"added": after.keys() - before.keys(), "changed": changed, "removed": before.keys() - after.keys()}
    return "; ".join(f"{kind} {', '.join(sorted(names))}" for kind, names in kinds.items() if names) or "the same keys"


def _parts(authorization: str) -> tuple[str, bytes | None]:
    """(name, signature) of `MQv2-HMAC-SHA1 Credential=NAME[/…], SignedHeaders=…, Signature=HEX`; None: malformed."""
    algorithm, _, rest = authorization.partition(" ")
    items = dict(item.strip().partition("=")[::2] for item in rest.split(","))
    signature = items.get("Signature", "")
    # Clients differ in the case of hex digits; a value is cut at the first "=" only, as in the reference.
    if algorithm != ALGORITHM or not _SIGNATURE.fullmatch(signature):
        return "", None
    return items.get("Credential", "").partition("/")[0], bytes.fromhex(signature)


# ── The file ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: pathlib.Path) -> dict[str, Key]:
    """Reads the keys of a file, by name. Raises ValueError: one sentence, which quotes no secret."""
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno())
            mode = stat.S_IMODE(found.st_mode)
            # A file of root that the broker's group may read is how Kubernetes mounts secrets for a user.
            if mode & (0o077 if found.st_uid == os.geteuid() else 0o037):
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
    """Reads one table of the file. Raises ValueError."""
    if not isinstance(table, dict) or set(table) - {"expires"} != {"secret", "allow"}:
        raise ValueError(f"{path}: [{name}] is not a table with secret and allow, perhaps expires, and nothing else")
    secret, allow, expires = table["secret"], table["allow"], table.get("expires")
    both = secret if isinstance(secret, list) else [secret]
    if not all(isinstance(one, str) and len(one) >= SECRET_CHARACTERS_MIN for one in both):
        raise ValueError(f"{path}: the secret of [{name}] is not a text of at least {SECRET_CHARACTERS_MIN} characters")
    if not 1 <= len(both) <= SECRETS_MAX:
        raise ValueError(f"{path}: [{name}] has {len(both)} secrets: one, or two while clients change to the new one")
    if expires is not None and not (isinstance(expires, datetime) and expires.tzinfo):
        raise ValueError(f"{path}: expires of [{name}] is not a time with its zone, e.g. 2027-01-31T00:00:00Z")
    expires_ms = int(expires.timestamp() * 1000) if expires else NEVER_MS
    if not isinstance(allow, list) or not all(isinstance(text, str) for text in allow):
        raise ValueError(f"{path}: allow of [{name}] is not a list of texts")
    try:
        return Key(check_name(name), both, map(read_grant, allow), expires_ms)
    except ValueError as error:
        raise ValueError(f"{path}: [{name}]: {error}") from None


def check_name(name: str) -> str:
    """Validates the name of a key. Raises ValueError."""
    if not _NAME.fullmatch(name):
        raise ValueError("a key's name has 1–64 letters, digits, '_' and '-'")
    return name


def stanza(name: str, allow: Iterable[str], expires: datetime | None = None) -> str:
    """A new key with a random secret, as TOML. Raises ValueError for an invalid name or entry."""
    texts = list(allow)
    for text in texts:
        read_grant(text)
    quoted = ", ".join(f'"{text}"' for text in texts)
    end = f"expires = {expires.isoformat(timespec='seconds')}\n" if expires else ""
    return f'[{check_name(name)}]\nsecret = "{secrets.token_urlsafe(32)}"\nallow = [{quoted}]\n{end}'
