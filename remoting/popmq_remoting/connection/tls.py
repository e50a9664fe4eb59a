"""TLS to brokers: off, on (encrypted, any certificate), or verified; with a certificate of the client where they ask.

Brokers speak TLS and plain text on the same port. Without a setting of their own they show a test certificate, which
only `on` accepts.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import Enum


class TlsMode(Enum):
    OFF = "off"
    ON = "on"
    VERIFY = "verify"


@dataclass(frozen=True)
class ClusterTls:
    """Files are PEM. `server_name`: the name in certificates of brokers whose routes name them by address.

    Without it their certificates have to name these addresses.
    """

    mode: TlsMode = TlsMode.OFF
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""

    def context(self) -> ssl.SSLContext | None:
        """What connections use; None without TLS. Raises OSError, or ssl.SSLError, which is one, for unusable files."""
        if self.mode is TlsMode.OFF:
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        if self.mode is TlsMode.ON:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.cert_file:
            context.load_cert_chain(self.cert_file, self.key_file or None)
        return context
