"""The table: each setting with its flag, its variable, its key, its default, and the engines that it is for."""

import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from popmq_server.options import (
    BROKER_TLS,
    CONNECTIONS_PER_ADDRESS,
    ENGINES,
    HOST,
    HTTP_PORT,
    JOURNAL_MODES,
    LOG_FORMATS,
    LOG_LEVELS,
    MEMBER_CONNECTIONS,
    SYNC_MODES,
    TLS_PORT,
    TRANSPORTS,
    Options,
)
from popmq_server.settings import readers

PREFIX = "POPMQ_"
CONNECTIONS_MAX = 1_000_000
#: More processes than a machine has cores only cost memory.
WORKERS_MAX = 256

#: What a setting is read as: a number, a text, a path, a list …
Value: TypeAlias = Any


class Setting(NamedTuple):
    """One setting; `name` is its field in Options and its key in the file.

    `shown`: the default in words. `reload`: what SIGHUP reads again: "value", "content" of the named file, or nothing.
    `engines`: those that it is for; () = all.
    """

    name: str
    read: Callable[[str], Value]
    metavar: str
    shown: str
    help: str
    reload: str = ""
    engines: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.name.upper()}"

    @property
    def default(self) -> Value:
        """The default of `popmq serve`; an embedded broker serves no TLS and no HTTP unless asked."""
        return _SERVED.get(self.name, Options._field_defaults[self.name])

    @property
    def meaning(self) -> str:
        """Its help, with the engines that it is for if there are others."""
        return self.help if self.engines in ((), ENGINES) else f"{self.help} (--engine {' or '.join(self.engines)})"

    @property
    def is_switch(self) -> bool:
        return self.read is readers.switch

    @property
    def is_list(self) -> bool:
        """Whether it has several values: its flag is repeated, its key in the file may be a list."""
        return self.read in (readers.host_list, readers.name_servers, readers.origins)


#: Ports that `popmq serve` opens, and an embedded broker only if asked.
_SERVED = {"tls_port": TLS_PORT, "http_port": HTTP_PORT}
#: Settings of the data folder and the data file.
_EMBEDDED = ("embedded",)
#: Settings of a gateway, which keeps nothing.
_ROCKETMQ = ("rocketmq",)


def _choice(
    name: str,
    choices: tuple[str, ...],
    help: str,
    shown: str,
    reload: str = "",
    engines: tuple[str, ...] = (),
) -> Setting:
    return Setting(name, readers.one_of(*choices), f"{{{','.join(choices)}}}", shown, help, reload, engines)


SETTINGS = (
    _choice(
        "engine",
        ENGINES,
        "what keeps the messages; embedded: a store in the data folder; rocketmq: a RocketMQ 5 cluster, in front of "
        "which this process is a gateway",
        "embedded",
    ),
    Setting(
        "data",
        pathlib.Path,
        "DIR",
        "./popmq-data",
        "data folder, made when missing: one folder, one broker",
        engines=_EMBEDDED,
    ),
    Setting(
        "host",
        readers.host_list,
        "HOST",
        HOST,
        "address to listen on; repeat the flag, or use commas, for several; 0.0.0.0: all of IPv4, `::`: also all of "
        "IPv6",
    ),
    Setting("port", readers.port, "PORT", "8081", "gRPC port without TLS, 0 = any free one"),
    Setting("tls_port", readers.port, "PORT", "8082, or none when that is taken", "gRPC port with TLS, 0 = none"),
    Setting("tls_only", readers.switch, "", "no", "leave the port without TLS closed"),
    Setting(
        "tls_cert",
        pathlib.Path,
        "FILE",
        "a certificate for development, made in the data folder",
        "certificate chain (PEM), read again when it is replaced",
        "content",
    ),
    Setting("tls_key", pathlib.Path, "FILE", "none", "private key of the certificate (PEM)", "content"),
    Setting(
        "tls_client_ca",
        pathlib.Path,
        "FILE",
        "none",
        "authorities of client certificates (PEM), read again when it is replaced; names in a certificate identify an "
        "access key",
        "content",
    ),
    Setting(
        "tls_client_required", readers.switch, "", "no", "refuse connections to the TLS port without such a certificate"
    ),
    Setting(
        "http_port",
        readers.port,
        "PORT",
        "8083, or none when that is taken",
        "port of HTTP with JSON, for clients without gRPC; with --tls-only it has TLS; 0 = none",
    ),
    Setting(
        "http_origins",
        readers.origins,
        "ORIGIN",
        "none",
        "web pages that may call the HTTP port, such as https://shop.example; repeat the flag, or use commas; * = all",
    ),
    Setting(
        "access_keys",
        pathlib.Path,
        "FILE",
        "none",
        "access keys and their rights (TOML, mode 600), read again when replaced; every call then needs a key",
        "content",
    ),
    Setting(
        "metrics_port",
        readers.port,
        "PORT",
        "9464, or none when that is taken",
        "HTTP port of /metrics, /healthz and /readyz, 0 = off",
    ),
    Setting(
        "metrics_host",
        readers.host_list,
        "HOST",
        HOST,
        "address of the metrics port, or several; the port asks for no key and has no TLS",
    ),
    Setting("console_port", readers.port, "PORT", "0", "HTTP port of the web console, a process of its own, 0 = none"),
    Setting(
        "console_host",
        readers.host_list,
        "HOST",
        HOST,
        "address of the console, or several; an address other than the loopback needs --tls-cert",
    ),
    Setting(
        "max_size",
        readers.max_size,
        "SIZE",
        "64GiB, or what `popmq max-size` has set",
        "limit of the data file, e.g. 20GiB, from 16MiB to 64TiB",
        engines=_EMBEDDED,
    ),
    _choice(
        "sync",
        SYNC_MODES,
        "full: an OK is on disk; meta: a power cut may lose the last commit, the store stays consistent; none: a power "
        "cut may lose what the system had not written, and may damage the store; a killed process never loses anything",
        "full",
        engines=_EMBEDDED,
    ),
    _choice(
        "journal",
        JOURNAL_MODES,
        "on: small commits are appended to a file, with one sync, and written to the data file each second; off: each "
        "commit is written to the data file. An OK promises the same",
        "on",
        engines=_EMBEDDED,
    ),
    _choice("transport", TRANSPORTS, "the HTTP/2 implementation: python (PopMQ's own) or grpcio; auto: python", "auto"),
    Setting(
        "connections_per_address",
        readers.number_of("connections", CONNECTIONS_MAX),
        "N",
        f"{CONNECTIONS_PER_ADDRESS}",
        "open connections of one client address, 1–1,000,000; raise it behind a proxy. Not with --transport grpcio",
    ),
    Setting(
        "namesrv",
        readers.name_servers,
        "HOST:PORT",
        "none; it has to be named",
        "name server of the cluster; repeat the flag, or use commas, for several",
        engines=_ROCKETMQ,
    ),
    Setting(
        "cluster",
        readers.cluster,
        "NAME",
        "the only one that the name servers know",
        "name of the cluster, whose brokers get new topics and groups",
        engines=_ROCKETMQ,
    ),
    Setting(
        "broker_key",
        pathlib.Path,
        "FILE",
        "none",
        "user of the gateway at the brokers (TOML, mode 600: access_key, secret, token), read again when replaced",
        "content",
        _ROCKETMQ,
    ),
    _choice(
        "broker_tls",
        BROKER_TLS,
        "TLS to name servers and brokers; on: encrypted, any certificate; verify: their certificates are verified",
        "off",
        engines=_ROCKETMQ,
    ),
    Setting(
        "broker_ca",
        pathlib.Path,
        "FILE",
        "those that the system trusts",
        "authorities of the brokers' certificates (PEM), with --broker-tls verify",
        engines=_ROCKETMQ,
    ),
    Setting(
        "broker_cert",
        pathlib.Path,
        "FILE",
        "none",
        "certificate that the gateway shows to brokers which ask for one (PEM)",
        engines=_ROCKETMQ,
    ),
    Setting(
        "broker_cert_key",
        pathlib.Path,
        "FILE",
        "none",
        "private key of that certificate (PEM)",
        engines=_ROCKETMQ,
    ),
    Setting(
        "handle_secret",
        pathlib.Path,
        "FILE",
        "a random one, which no other gateway knows",
        "secret that all gateways of a cluster share (mode 600, one in a line, or two while it is rotated), read again "
        "when replaced; with --access-keys it has to be named",
        "content",
        _ROCKETMQ,
    ),
    Setting(
        "workers",
        readers.number_of("workers", WORKERS_MAX),
        "N",
        "1",
        f"processes that serve the ports, 1–{WORKERS_MAX}; limits of access keys are those of each process. Not with "
        "--transport grpcio",
        engines=_ROCKETMQ,
    ),
    Setting(
        "member_connections",
        readers.number_of("connections", CONNECTIONS_MAX),
        "N",
        f"{MEMBER_CONNECTIONS}",
        "members of groups that pull, or share queues, of one process: each has a connection to every master",
        engines=_ROCKETMQ,
    ),
    _choice(
        "log_level",
        LOG_LEVELS,
        "lowest level that is logged, to standard error: debug, info, warning, error",
        "info",
        "value",
    ),
    _choice("log_format", LOG_FORMATS, "text, or json: an object in each line", "text", "value"),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}
BY_VARIABLE = {setting.variable: setting for setting in SETTINGS}


def shown(value: object) -> str:
    """A value as its variable would name it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)
