"""The certificate of the TLS port: its source, and the pair that a new connection gets.

    --tls-cert, --tls-key  ─┐
                            ├─▶ read, checked to match ─▶ Certificate ─▶ asked at every new connection
    DIR/development-*.pem ──┘                                 │
    made once, mode 600                files replaced? ───────┘  valid: the new pair; unusable: the old one, logged

A development certificate is self-signed, for this machine's names. Clients that verify it need its file.
"""

import ipaddress
import logging
import os
import pathlib
import socket
import ssl
import tempfile
import threading
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, cast

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from popmq_server.clock import Clock
from popmq_server.errors import StartError
from popmq_server.private_file import FileVersion, file_version

log = logging.getLogger("popmq.tls")

DEVELOPMENT_CERT = "development-cert.pem"
DEVELOPMENT_KEY = "development-key.pem"
#: Long, because development certificates are not maintained.
_DAYS = 3650
#: Exceptions for files that are not a certificate and its key; TypeError: the key has a password.
FAULTS = (OSError, ValueError, TypeError, UnsupportedAlgorithm)
#: The log warns this long before the end of a certificate, as the alert does.
_SOON = timedelta(days=7)
_COMMON_NAME, _COMMON_NAME_MAX = "PopMQ development", 64
_DNS_NAME_MAX = 253


class CertificatePair(NamedTuple):
    """A certificate chain and its private key, and the authorities of clients' certificates, "" for none; as PEM.

    Never logged: the key is a secret.
    """

    chain: bytes
    key: bytes
    client_ca: bytes = b""

    def __repr__(self) -> str:
        return "Pair(…)"


class Certificate:
    """The pair of two files, read again when one of them is replaced. Thread-safe.

    `client_ca`: a file of the authorities whose certificates clients may show; read again like the others.
    """

    def __init__(
        self, cert: pathlib.Path, key: pathlib.Path, clock: Clock, client_ca: pathlib.Path | None = None
    ) -> None:
        """Raises StartError when the files are not a certificate and its key, or no authority."""
        self.cert, self._key, self._client_ca, self._clock = cert, key, client_ca, clock
        self._lock = threading.Lock()
        self._seen = self._look()
        try:
            self.pair = _read(cert, key, client_ca)
        except FAULTS as error:
            raise StartError(
                f"the certificate {cert} with the key {key} cannot be used: {_why(error)}; name a PEM chain and its "
                "key without a password by --tls-cert and --tls-key, or leave both out for a development certificate"
            ) from None
        self.warn()

    def left_s(self) -> float:
        """Seconds until the certificate of the next connection expires; negative if it has."""
        return (_ends(self.current().chain) - _now(self._clock)).total_seconds()

    def warn(self) -> None:
        """Logs a warning about a certificate that is no longer valid, or ends soon."""
        left = _ends(self.pair.chain) - _now(self._clock)
        if left <= timedelta(0):
            log.warning("the certificate %s is no longer valid: clients that verify it will not connect", self.cert)
        elif left < _SOON:
            log.warning(
                "the certificate %s is valid for %d more hours: replace it, or clients that verify it will not connect",
                self.cert,
                left / timedelta(hours=1),
            )

    def current(self) -> CertificatePair:
        """The pair for a new connection: another object after the files were replaced by a valid pair.

        Files are replaced one by one: an unusable pair is read again when one of its files changes.
        """
        self.reload()
        return self.pair

    def reload(self) -> str:
        """Loads the pair if a file was replaced; returns what changed. An unusable pair is logged, the old stays."""
        with self._lock:
            if (seen := self._look()) == self._seen:
                return ""
            self._seen = seen
            try:
                pair = _read(self.cert, self._key, self._client_ca)
            except FAULTS as error:
                log.error(
                    "the new certificate %s cannot be used; the old one stays in use: %s",
                    self.cert,
                    _why(error),
                )
                return ""
            what = "certificate" if pair[:2] != self.pair[:2] else "list of client authorities beside the certificate"
            self.pair = pair
            change = f"the {what} {self.cert} was replaced"
            log.info("%s", change)
            self.warn()
            return change

    def _look(self) -> tuple[FileVersion, ...]:
        """The versions of the files, since each may be replaced alone."""
        return tuple(map(file_version, filter(None, (self.cert, self._key, self._client_ca))))


def development(
    folder: pathlib.Path, hosts: tuple[str, ...], clock: Clock, client_ca: pathlib.Path | None = None
) -> Certificate:
    """The development certificate in `folder`; made when it is missing, or when one that was made is no longer valid.

    Files of others under these names are used, and never replaced. `hosts`: where the broker listens. Raises
    StartError.
    """
    cert, key = folder / DEVELOPMENT_CERT, folder / DEVELOPMENT_KEY
    try:
        if not cert.exists() or (_is_ours(cert) and (not key.exists() or _ends(cert.read_bytes()) <= _now(clock))):
            # A key without a certificate is used: an interrupted start may have left it. The certificate comes last.
            if not key.exists():
                _write(key, _new_key())
            texts = ["localhost", "127.0.0.1", "::1", *hosts, socket.gethostname()]
            _write(cert, _make(_names(texts), _now(clock), key.read_bytes()))
        _read(cert, key)
        _warn_unnamed(cert, hosts)
    except FAULTS as error:
        raise StartError(
            f"the development certificate {cert} cannot be used: {_why(error)}; remove {cert.name} and {key.name}, and "
            "they are created again, name others by --tls-cert and --tls-key, or serve no TLS by --tls-port 0"
        ) from None
    return Certificate(cert, key, clock, client_ca)


def _read(cert: pathlib.Path, key: pathlib.Path, client_ca: pathlib.Path | None = None) -> CertificatePair:
    """Reads the files and checks that the pair matches. Raises one of FAULTS."""
    # The broker serves the bytes checked here: it does not read the files again.
    pair = CertificatePair(cert.read_bytes(), key.read_bytes(), client_ca.read_bytes() if client_ca else b"")
    served = x509.load_pem_x509_certificates(pair.chain)[0]
    if serialization.load_pem_private_key(pair.key, None).public_key() != served.public_key():
        raise ValueError("the key is of another certificate")
    # OpenSSL, which serves it, refuses some that are read here: short keys, old digests, a chain that is cut off.
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, str)
    if client_ca:
        try:
            x509.load_pem_x509_certificates(pair.client_ca)
        except ValueError:
            raise ValueError(f"{client_ca} holds no certificate of an authority (--tls-client-ca)") from None
    return pair


def _why(error: BaseException) -> str:
    """One sentence about the fault; for an OSError with the file's name."""
    if isinstance(error, OSError) and error.filename:  # OpenSSL names none
        return f"{error.strerror}: {error.filename}"
    return str(error).rstrip(".")


def _ends(chain: bytes) -> datetime:
    """The end of the certificate's validity. Raises ValueError if it is malformed."""
    return x509.load_pem_x509_certificate(chain).not_valid_after_utc


def _now(clock: Clock) -> datetime:
    """The wall clock, with which clients compare a certificate."""
    return datetime.fromtimestamp(clock.wall_ms() / 1000, UTC)


def _warn_unnamed(cert: pathlib.Path, hosts: tuple[str, ...]) -> None:
    """Logs a warning about hosts that a certificate of an earlier start does not name. Raises one of FAULTS."""
    if not _is_ours(cert):
        return
    made = x509.load_pem_x509_certificate(cert.read_bytes()).extensions
    named = {name for each in made if isinstance(each.value, x509.SubjectAlternativeName) for name in each.value}
    if missing := [host for host in hosts if not named.issuperset(_names([host]))]:
        log.warning(
            "the development certificate %s does not name %s: remove it, and the next start makes another, or clients "
            "that verify it will not connect there",
            cert,
            ", ".join(missing),
        )


def _names(texts: Iterable[str]) -> list[x509.GeneralName]:
    """The names by which clients may call this machine."""
    names: list[x509.GeneralName] = []
    for text in dict.fromkeys(texts):
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            if text.isascii() and 0 < len(text) <= _DNS_NAME_MAX:
                names.append(x509.DNSName(text))
        else:
            if not address.is_unspecified:
                names.append(x509.IPAddress(address))
    return names


def _is_ours(cert: pathlib.Path) -> bool:
    """Whether a broker made the certificate: that of others is not replaced. Raises one of FAULTS."""
    made = x509.load_pem_x509_certificate(cert.read_bytes())
    names = made.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return made.issuer == made.subject and any(str(name.value).startswith(_COMMON_NAME) for name in names)


def _new_key() -> bytes:
    """A private key as PEM."""
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(pem, form, serialization.NoEncryption())


def _make(names: list[x509.GeneralName], now: datetime, pem: bytes) -> bytes:
    """A certificate of the key, self-signed, and not a CA: some TLS libraries refuse a CA certificate from a server."""
    key = cast(ec.EllipticCurvePrivateKey, serialization.load_pem_private_key(pem, None))
    common = f"{_COMMON_NAME}, {socket.gethostname()}"[:_COMMON_NAME_MAX]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _write(path: pathlib.Path, content: bytes) -> None:
    """Writes the file atomically, with mode 600 from creation."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
