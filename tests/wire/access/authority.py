"""An authority for client certificates, made for a test."""

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Made(NamedTuple):
    """A certificate and its key, PEM."""

    chain: bytes
    key: bytes


class Authority:
    """An authority that a test makes, and the certificates that it signs."""

    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.pem = self._sign(self._name, self._key.public_key(), x509.BasicConstraints(ca=True, path_length=None))

    def client(self, common: str = "", *others: x509.GeneralName, days: int = 1) -> Made:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)] if common else [])
        names = [x509.SubjectAlternativeName(others)] if others else []
        raw = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return Made(self._sign(subject, key.public_key(), *names, days=days), key.private_bytes(*raw))

    def _sign(self, subject: x509.Name, key: Any, *extensions: x509.ExtensionType, days: int = 1) -> bytes:
        now = datetime.now(UTC)
        draft = x509.CertificateBuilder().subject_name(subject).issuer_name(self._name).public_key(key)
        draft = draft.serial_number(x509.random_serial_number())
        draft = draft.not_valid_before(now - timedelta(days=2)).not_valid_after(now + timedelta(days=days))
        for extension in extensions:
            draft = draft.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return draft.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
