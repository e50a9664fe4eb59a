"""How a client reaches its broker: the endpoint, TLS, and the access key that signs its calls.

    access_key, secret  ─┐  else POPMQ_ACCESS_KEY, POPMQ_SECRET, POPMQ_SECRET_FILE
                         └─▶ Signer ──▶ two headers of each call, the same for a minute

A signature covers only a time: whoever reads it on the network can use it, so use TLS outside a private network. The
secret is neither sent nor shown.
"""

import hmac
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

import grpc

from popmq.errors import InvalidField

#: Names and values of call headers.
Headers = tuple[tuple[str, str], ...]

#: Seconds that a signature is reused: computing it is the most expensive part of signing.
_SIGN_EVERY_S = 60.0


class Signer:
    """Signs calls with an access key, as docs/security.md says; from any thread."""

    __slots__ = ("_headers", "_secret", "_signed_at", "access_key")

    def __init__(self, access_key: str, secret: str) -> None:
        self.access_key = access_key
        self._secret = secret.encode()
        self._signed_at = float("-inf")
        self._headers: Headers = ()

    def __repr__(self) -> str:
        return f"<access key {self.access_key}>"

    def headers(self) -> Headers:
        """The headers of a call."""
        if time.monotonic() - self._signed_at >= _SIGN_EVERY_S:
            moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
            mac = hmac.new(self._secret, moment.encode(), "sha1").hexdigest()
            signed = f"MQv2-HMAC-SHA1 Credential={self.access_key}, SignedHeaders=x-mq-date-time, Signature={mac}"
            self._headers = ("x-mq-date-time", moment), ("authorization", signed)
            self._signed_at = time.monotonic()
        return self._headers


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything that a channel is made from. `credentials`: of TLS; None = without."""

    endpoint: str
    credentials: grpc.ChannelCredentials | None = field(default=None, repr=False)
    signer: Signer | None = None

    def headers(self) -> Headers | None:
        """The headers of each call; None without a key."""
        return self.signer.headers() if self.signer else None


def connection(
    endpoint: str, tls: bool, tls_ca: str | os.PathLike[str] | None, access_key: str | None, secret: str | None
) -> Connection:
    """Raises InvalidField for half a key, and for files that cannot be read."""
    credentials = None
    if tls or tls_ca:
        credentials = grpc.ssl_channel_credentials(_read("tls_ca", tls_ca).encode() if tls_ca else None)
    return Connection(endpoint, credentials, _signer(access_key, secret))


def _signer(access_key: str | None, secret: str | None) -> Signer | None:
    """None without a key. What is given counts before the environment."""
    name = access_key or os.environ.get("POPMQ_ACCESS_KEY", "")
    secret = secret or os.environ.get("POPMQ_SECRET", "")
    if not secret and (path := os.environ.get("POPMQ_SECRET_FILE")):
        secret = _read("secret", path).strip()
    if bool(name) != bool(secret):
        missing = "secret" if name else "access_key"
        raise InvalidField(
            f"an access key has a name and a secret, and the {missing} is missing",
            code="INVALID_FIELD",
            field=missing,
            action=f"give it as {missing}=…, or in the environment as POPMQ_{missing.upper()}",
        )
    return Signer(name, secret) if name else None


def _read(what: str, path: str | os.PathLike[str]) -> str:
    """The text of a file."""
    try:
        return Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise InvalidField(
            f"{what}: {os.fspath(path)} cannot be read: {why}",
            code="INVALID_FIELD",
            field=what,
            action="name a file that this process may read",
        ) from None
