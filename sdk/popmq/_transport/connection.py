"""How a client reaches its broker: the endpoint, TLS, and the access key that its calls prove.

    endpoint, tls, tls_ca, client_cert, client_key      each: as given; else the variable POPMQ_ENDPOINT, POPMQ_TLS, …
    access_key, secret  ─┐  else POPMQ_ACCESS_KEY, POPMQ_SECRET, POPMQ_SECRET_FILE
                         └─▶ Signer ──▶ two headers of each call, the same for a minute

A proof covers only a name and a time: an attacker who reads it on the network can use it, so use TLS outside a private
network. The secret is neither sent nor shown.
"""

import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from popmq._given.fields import text
from popmq.config import DEFAULT_ENDPOINT, switch, trimmed, variable
from popmq.errors import InvalidField
from popmq_http2.client.target import target, tls_context
from popmq_http2.elapsed import monotonic, wall

if TYPE_CHECKING:
    import ssl

#: What carries calls: PopMQ's own HTTP/2 in Python, or grpcio. auto: DEFAULT_TRANSPORT.
Transport = Literal["auto", "python", "grpcio"]
DEFAULT_TRANSPORT: Transport = "python"

FilePath = str | os.PathLike[str]
#: Names and values of call headers.
Headers = tuple[tuple[str, str], ...]

#: Seconds that a proof is reused: computing it is the most expensive part of signing.
_SIGN_EVERY_S = 60.0


class Signer:
    """Signs calls with an access key; from any thread.

    The proof is that of SCRAM-SHA-256 (RFC 5802, section 3) over a name and a time, as docs/security.md says: the
    broker can verify it with a hash of the secret.
    """

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
        if monotonic() - self._signed_at >= _SIGN_EVERY_S:
            moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(wall()))
            import hmac  # which loads OpenSSL
            from hashlib import sha256

            client_key = hmac.digest(self._secret, b"Client Key", "sha256")
            mask = hmac.digest(sha256(client_key).digest(), f"{self.access_key},{moment}".encode(), "sha256")
            proof = bytes(a ^ b for a, b in zip(client_key, mask, strict=True)).hex()
            signed = f"PopMQ-SCRAM-SHA-256 Credential={self.access_key}, Proof={proof}"
            self._headers = ("x-mq-date-time", moment), ("authorization", signed)
            self._signed_at = monotonic()
        return self._headers


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything that a channel is made from. `tls_ca`: the text of its file; None = those that are trusted anyway.

    `client_cert`: the certificate to show, and its private key; files (PEM) that are read for each channel.
    """

    endpoint: str
    transport: Transport
    tls: bool = False
    tls_ca: str | None = field(default=None, repr=False)
    signer: Signer | None = None
    client_cert: tuple[str, str] | None = None

    def headers(self) -> Headers | None:
        """The headers of each call; None without a key."""
        return self.signer.headers() if self.signer else None

    def tls_context(self) -> "ssl.SSLContext | None":
        """What popmq_http2 takes for TLS; None = without. Raises InvalidField for a file without certificates."""
        if not self.tls:
            return None
        try:
            context = tls_context(self.tls_ca)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise InvalidField(
                f"tls_ca: the file holds no certificate that can be read: {error}",
                code="INVALID_FIELD",
                field="tls_ca",
                action="name a file with certificates as PEM",
            ) from None
        try:
            if self.client_cert:
                context.load_cert_chain(*self.client_cert, password="")  # without one, OpenSSL asks at the terminal
        except (OSError, ValueError) as error:
            raise InvalidField(
                f"client_cert: the files are not a certificate and its key: {error}",
                code="INVALID_FIELD",
                field="client_cert",
                action="name a certificate as PEM, and its private key, as PEM without a password",
            ) from None
        return context


def connection(
    endpoint: str | None,
    tls: bool | None,
    tls_ca: FilePath | None,
    access_key: str | None,
    secret: str | None,
    transport: Transport | None,
    client_cert: FilePath | None,
    client_key: FilePath | None,
) -> Connection:
    """What is not given (None) is taken from the environment; "" is none.

    Raises InvalidField for half a key, half a client certificate, files that cannot be read, an unknown transport, a
    wrong endpoint and a variable with a wrong value.
    """
    if endpoint is None:
        endpoint = variable("endpoint") or DEFAULT_ENDPOINT
    if not isinstance(endpoint, str):
        raise TypeError(f"the endpoint is {endpoint!r}, of type {type(endpoint).__name__}: give a str, host:port")
    chosen = _transport(transport)
    try:
        port = target(endpoint).port if chosen == "python" else ""
        # gRPC, and so both transports, would take 443.
        if ":" not in endpoint or (port and not endpoint.endswith(f":{port}")):
            raise ValueError(f"{endpoint!r} is not host:port")
    except ValueError as error:
        action = (
            "give a host and a port, such as 127.0.0.1:8081, and no http://; the port is 8081, or 8082 with TLS, "
            "unless the broker was started with others"
        )
        raise InvalidField(f"endpoint: {error}", code="INVALID_FIELD", field="endpoint", action=action) from None
    tls_ca = variable("tls_ca") if tls_ca is None else tls_ca
    ca = _read("tls_ca", tls_ca) if tls_ca else None
    shown = _client_cert(
        variable("client_cert") if client_cert is None else client_cert,
        variable("client_key") if client_key is None else client_key,
    )
    if not isinstance(tls, bool | None):
        raise TypeError(f"tls is {tls!r:.80}, of type {type(tls).__name__}: give True or False")
    with_tls = (switch("tls") if tls is None else tls) or ca is not None or shown is not None
    return Connection(endpoint, chosen, with_tls, ca, _signer(access_key, secret), shown)


def _client_cert(cert: FilePath, key: FilePath) -> tuple[str, str] | None:
    """The files of a client certificate, once seen to be readable; None without one."""
    if bool(cert) != bool(key):
        missing = "client_key" if cert else "client_cert"
        raise InvalidField(
            f"a client certificate is two files, and {missing} is missing",
            code="INVALID_FIELD",
            field=missing,
            action=f"name the file as {missing}=…",
        )
    if not cert or not key:
        return None
    _read("client_cert", cert)
    _read("client_key", key)
    return os.fspath(cert), os.fspath(key)


def _transport(given: str | None) -> Transport:
    """What is given counts before the environment."""
    name = given or variable("client_transport") or "auto"
    for known in get_args(Transport):
        if name == known:
            return DEFAULT_TRANSPORT if known == "auto" else known
    raise InvalidField(
        f"transport {name!r} is not one of {', '.join(get_args(Transport))}", code="INVALID_FIELD", field="transport"
    )


def _signer(access_key: str | None, secret: str | None) -> Signer | None:
    """None without a key. What is given counts before the environment."""
    name = variable("access_key") if access_key is None else text(access_key, "access_key")
    if secret is None:
        secret = variable("secret")
        if not secret and (path := variable("secret_file")):
            secret = _read("secret", path)
    secret = trimmed(text(secret, "secret"))  # a file ends with a line end, whoever has read it
    if bool(name) != bool(secret):
        missing, option = ("secret", "--secret-file FILE") if name else ("access_key", "--access-key NAME")
        raise InvalidField(
            f"an access key has a name and a secret, and the {missing} is missing",
            code="INVALID_FIELD",
            field=missing,
            action=f"give it as {missing}=… ({option}), or in the environment as POPMQ_{missing.upper()}",
        )
    if not all("!" <= sign <= "~" and sign != "," for sign in name):
        raise InvalidField(
            f"access_key {name!r} has signs that no access key has",
            code="INVALID_FIELD",
            field="access_key",
            action="give its name in ASCII, without blanks and line ends",
        )
    return Signer(name, secret) if name else None


def _read(what: str, path: str | os.PathLike[str]) -> str:
    """The text of a file, without a byte order mark."""
    try:
        with open(path, encoding="utf-8-sig") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "not a text"
        raise InvalidField(
            f"{what}: {os.fspath(path)} cannot be read: {why}",
            code="INVALID_FIELD",
            field=what,
            action="name a file that this process may read",
        ) from None
