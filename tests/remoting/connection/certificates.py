"""Certificates of brokers and clients, made for a test."""

import ssl
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509

from tests.wire.access.authority import Authority


class Certificates:
    """Files of an authority, of a pair that it signed for 127.0.0.1 and `brokers`, and of another authority."""

    def __init__(self, folder: Path) -> None:
        authority = Authority("brokers")
        names = (x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("brokers"))
        made = authority.client("broker", *names)
        self.ca = _written(folder / "ca.pem", authority.pem)
        self.other_ca = _written(folder / "other.pem", Authority("others").pem)
        self.cert = _written(folder / "cert.pem", made.chain)
        self.key = _written(folder / "key.pem", made.key)

    def server(self, asks_client: bool) -> ssl.SSLContext:
        """What a broker listens with."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.cert, self.key)
        if asks_client:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


def _written(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path
