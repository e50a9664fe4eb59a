"""The options of a console."""

import hashlib
import ipaddress
import re
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

HOSTS = ("127.0.0.1",)
PORT = 8090
#: The beginning of the addresses of one broker of several.
AT = "/at/"
#: Brokers in the menu of one console; they share the logins that a console may have.
BROKERS_MAX = 20
_PLAIN = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}")


class OptionError(Exception):
    """Options that do not fit together: one sentence that says what to do."""


@dataclass(frozen=True, slots=True)
class BrokerInMenu:
    """A broker in the menu: how to reach it. No key and no secret: visitors log in with their own."""

    name: str
    endpoint: str
    tls: bool = False
    tls_ca: str | None = None

    @property
    def slug(self) -> str:
        """The name in addresses and in the name of the cookie; of a name with other characters, its hash."""
        return self.name if _PLAIN.fullmatch(self.name) else hashlib.sha256(self.name.encode()).hexdigest()[:16]

    @property
    def root(self) -> str:
        """What the addresses of its pages begin with."""
        return AT + self.slug


@dataclass(frozen=True, slots=True)
class Options:
    """`endpoint`, `tls`, `tls_ca`: of the broker. `tls_cert`, `tls_key`: PEM files of the console's own port.
    `public_url`: how browsers name the console, when a proxy is in front of it. `every_s`: seconds between two
    looks at the numbers. `name`: of the broker, if it has one. `brokers`: those of the menu; without any, the console
    has one broker and no menu. `shown`: which of them the pages are of.
    """

    endpoint: str
    tls: bool = False
    tls_ca: str | None = None
    hosts: tuple[str, ...] = HOSTS  # without the brackets of IPv6
    port: int = PORT  # 0 = any free one
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str = ""
    every_s: float = 2.0
    name: str = ""
    brokers: tuple[BrokerInMenu, ...] = ()
    shown: BrokerInMenu | None = None

    def at(self, broker: BrokerInMenu) -> "Options":
        """The options of the pages of one broker of the menu."""
        return replace(
            self, endpoint=broker.endpoint, tls=broker.tls, tls_ca=broker.tls_ca, name=broker.name, shown=broker
        )

    @property
    def root(self) -> str:
        """What the addresses of the pages begin with; "" without a menu."""
        return self.shown.root if self.shown else ""

    @property
    def secure(self) -> bool:
        """Whether browsers reach the console by HTTPS, so that cookies can demand it."""
        return self.tls_cert is not None or self.public_url.startswith("https://")

    @property
    def public_host(self) -> str:
        """The name that browsers may use beside addresses and localhost; "" = none."""
        return (urlsplit(self.public_url).hostname or "").lower()

    def verify(self) -> None:
        """Raises OptionError."""
        if bool(self.tls_cert) != bool(self.tls_key):
            raise OptionError("--tls-cert and --tls-key belong together: name both files, or neither")
        if self.public_url and not self.public_url.startswith(("http://", "https://")):
            raise OptionError(f"--public-url {self.public_url} is not an address: write https://console.example")
        if not (self.tls_cert or self.public_url or all(map(is_loopback, self.hosts))):
            raise OptionError(
                f"on {', '.join(self.hosts)} secrets would travel in clear: name --tls-cert and --tls-key, or the "
                "--public-url under which a proxy serves this console"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
