"""Access keys: who calls, how a call proves it, and what a key allows. docs/security.md is the operators' guide.

    x-mq-date-time, authorization ──▶ Keys.caller ──▶ CALLER ──▶ authorization.py, before every command of the engine
    names of a certificate ─────────▶ Keys.certified   the key, or the refusal; for this call and its tasks
    --access-keys FILE ── key_file.py ──▶ Keys (known_keys.py)

A call proves its key by a signature or a proof over the bytes of x-mq-date-time as received (proofs.py). The RocketMQ 5
clients sign a local time as if it were UTC, so the broker compares no clock: an attacker who intercepts the headers can
replay them, therefore use TLS. A secret that the file has is in memory too, but in no text
that this module makes.
"""

import contextvars
import re
from collections.abc import Iterable
from secrets import token_hex
from typing import NamedTuple

from popmq_server.contract.rights import ADMIN, Need
from popmq_server.errors import Refused
from popmq_server.protocols.access.key_limits import NO_LIMITS, KeyLimits, KeyUse
from popmq_server.protocols.access.proofs import Claim, Secret
from popmq_server.values.reach import EVERYWHERE, Reach, matches

#: The end of a key that has none; later than any time of the wall clock.
NEVER_MS = 1 << 63
#: Size of each cache (proved signatures, a key's decisions); a full cache is cleared.
REMEMBERED_MAX = 4096

#: How many secrets a key may have: two while its clients change to the new one.
SECRETS_MAX = 2
_RANDOM = tuple(Secret.of(token_hex()) for _ in range(SECRETS_MAX))

_PATTERN = r"[A-Za-z0-9_.%+\-]+\*?|\*"
_GRANT = re.compile(rf"(send|receive)(?::({_PATTERN})(?:/({_PATTERN}))?)?|admin|\*")


class Grant(NamedTuple):
    """One entry of `allow`: a permission with a topic and a group, each a name, a prefix (`ord*`) or `*`.

    admin is for operators and their tools: it reads everything and manages schedules, but neither Send nor Pop.
    """

    permission: str
    topic: str = "*"
    group: str = "*"

    def __str__(self) -> str:
        """Returns the grant as it is written in `allow`."""
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
    return not name or matches(pattern, name)


def read_grant(text: str) -> Grant:
    """Parses an entry of `allow`. Raises ValueError that lists the valid forms."""
    found = _GRANT.fullmatch(text)
    if found is None or (found[1] == "send" and found[3]):
        raise ValueError(f"{text!r} is not send:TOPIC, receive:TOPIC/GROUP, admin or *; names may end with *")
    return Grant(found[1] or text, found[2] or "*", found[3] or "*")


class Key:
    """One access key. No output shows its secret.

    Immutable but for what `take` changes: changed grants make another Key, so cached decisions stay valid.
    `certificates`: names (DNS, URI, else CN) of client certificates that stand for this key, in place of a signature.
    """

    __slots__ = ("_decided", "_secrets", "certificates", "expires_ms", "grants", "limits", "name", "reach", "use")

    def __init__(
        self,
        name: str,
        secrets: Iterable[Secret],
        grants: Iterable[Grant],
        expires_ms: int = NEVER_MS,
        limits: KeyLimits = NO_LIMITS,
        certificates: Iterable[str] = (),
    ) -> None:
        self.name = name
        self.grants = tuple(grants)
        self.expires_ms = expires_ms
        self.limits = limits
        self.certificates = frozenset(certificates)
        self.use = KeyUse(name)
        #: Patterns of the topics and groups that the key may receive.
        self.reach: Reach = tuple((one.topic, one.group) for one in self.grants if one.permission in ("receive", "*"))
        self._secrets = tuple(secrets)
        self._decided: dict[Need, bool] = {}

    def __repr__(self) -> str:
        return f"<access key {self.name}>"

    @property
    def secrets(self) -> int:
        """How many secrets are accepted: two during a rotation."""
        return len(self._secrets)

    def same(self, other: "Key") -> bool:
        """Whether the other key has the same secrets, certificates, grants, end and limits."""
        mine = self._secrets, self.certificates, self.limits
        return mine == (other._secrets, other.certificates, other.limits) and self._same_rights(other)

    def _same_rights(self, other: "Key") -> bool:
        mine = self.name, self.grants, self.expires_ms
        return mine == (other.name, other.grants, other.expires_ms)

    def take(self, other: "Key") -> bool:
        """Takes over a key that differs only by more secrets or certificates and by limits; returns whether it does.

        So a rotation, which adds a secret, ends no stream. A key that loses a secret is another key.
        """
        more = set(self._secrets) <= set(other._secrets) and self.certificates <= other.certificates
        if not (more and self._same_rights(other)):
            return False
        self._secrets, self.certificates, self.limits = other._secrets, other.certificates, other.limits
        return True

    def proves(self, claim: Claim) -> bool:
        """Whether one of its secrets proves the claim. The time must not tell which one it was, nor how many there are:
        all are tried, and random ones in place of those that it lacks.
        """
        tried = (*self._secrets, *_RANDOM[len(self._secrets) :])
        return sum([secret.proves(claim) for secret in tried]) > 0

    def reach_or_admin(self) -> Reach:
        """Returns the pairs of topic and group that the key may receive or, with admin, inspect: all of them."""
        return EVERYWHERE if self.may(*ADMIN) else self.reach

    def may_create(self, group: str) -> bool:
        """Whether it may create a group: the one that a grant names without a `*`, or any with admin."""
        return self.may(*ADMIN) or any(of_group == group for _, of_group in self.reach)

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

#: Whether only the right admin allowed the running call: then it is an operator's action.
BY_ADMIN: contextvars.ContextVar[bool] = contextvars.ContextVar("popmq_by_admin", default=False)


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


def may(need: Need) -> bool:
    """Whether `check` allows it. Raises Refused UNAUTHENTICATED."""
    key = caller()
    return key is None or key.may(need)


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
