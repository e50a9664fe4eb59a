"""The settings of `popmq serve`: one table for flags, variables, keys of the file, help and docs/operations.md.

    --max-size 20GiB  >  POPMQ_MAX_SIZE=20GiB  >  max_size = "20GiB" in --config FILE  >  the default

The first source that names a setting decides. This module and options.py need the standard library only: the command
line makes its options from this table without the extra `server`.
"""

import argparse
import difflib
import os
import pathlib
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from popmq_server.options import (
    CONNECTIONS_PER_ADDRESS,
    ENGINES,
    HOST,
    LOG_FORMATS,
    LOG_LEVELS,
    MAX_SIZE_MAX,
    MAX_SIZE_MIN,
    SYNC_MODES,
    TLS_PORT,
    TRANSPORTS,
    Options,
    hosts,
    is_loopback,
    overlap,
)

PREFIX = "POPMQ_"
CONNECTIONS_MAX = 1_000_000
#: The flag and the variable that name the file; the file itself cannot.
CONFIG = "config"
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([KMGT])(?:IB)?)?", re.ASCII | re.IGNORECASE)
_SWITCH = {"1": True, "true": True, "yes": True, "on": True, "0": False, "false": False, "no": False, "off": False}
#: Kubernetes and Docker set POPMQ_PORT to this for a service named popmq; it is not meant as a setting.
_SERVICE_LINK = "tcp://"


class SettingError(Exception):
    """A setting that cannot be used: one sentence that names its source."""


# ── Readers: text → value. They raise argparse.ArgumentTypeError, whose text argparse shows as it is ─────────────────


def size(text: str) -> int:
    """Parses a size in bytes: `1073741824`, `512MiB`, `1.5GiB`."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: name bytes, or KiB, MiB, GiB, TiB, e.g. 20GiB")
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * (1 << 10 * (" KMGT".index(found[2].upper()) if found[2] else 0)))


def _max_size(text: str) -> int:
    value = size(text)
    if not MAX_SIZE_MIN <= value <= MAX_SIZE_MAX:
        raise argparse.ArgumentTypeError(f"{text} is out of range: {MAX_SIZE_MIN >> 20}MiB to {MAX_SIZE_MAX >> 40}TiB")
    return value


def _port(text: str) -> int:
    """A port, or 0, whose meaning depends on the setting."""
    if not text.isascii() or not text.isdecimal() or len(text) > 5 or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: 0–65535")
    return int(text)


def _connections(text: str) -> int:
    """A number of connections."""
    if not text.isascii() or not text.isdecimal() or len(text) > 7 or not 1 <= int(text) <= CONNECTIONS_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of connections: 1–{CONNECTIONS_MAX:,}")
    return int(text)


def _hosts(text: str) -> tuple[str, ...]:
    """A host, or several with commas between them."""
    try:
        return hosts(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
        return text

    return read


def _switch(text: str) -> bool:
    """A switch in the environment."""
    if text.lower() not in _SWITCH:
        raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")
    return _SWITCH[text.lower()]


# ── The table ────────────────────────────────────────────────────────────────────────────────────────────────────────


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
        """The default of `popmq serve`; an embedded broker serves no TLS unless asked."""
        return TLS_PORT if self.name == "tls_port" else Options._field_defaults[self.name]

    @property
    def meaning(self) -> str:
        """Its help, with the engines that it is for if there are others."""
        return self.help if self.engines in ((), ENGINES) else f"{self.help} (--engine {' or '.join(self.engines)})"

    @property
    def is_switch(self) -> bool:
        return self.read is _switch

    @property
    def is_list(self) -> bool:
        """Whether it has several values: its flag is repeated, its key in the file may be a list."""
        return self.read is _hosts


#: Settings of the data folder and the data file.
_EMBEDDED = ("embedded",)


def _choice(
    name: str,
    choices: tuple[str, ...],
    help: str,
    shown: str,
    reload: str = "",
    engines: tuple[str, ...] = (),
) -> Setting:
    return Setting(name, _one_of(*choices), f"{{{','.join(choices)}}}", shown, help, reload, engines)


SETTINGS = (
    _choice("engine", ENGINES, "what keeps the messages; embedded: a store in the data folder", "embedded"),
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
        _hosts,
        "HOST",
        HOST,
        "address to listen on; repeat the flag, or use commas, for several; 0.0.0.0: all of IPv4, `::`: also all of "
        "IPv6",
    ),
    Setting("port", _port, "PORT", "8081", "gRPC port without TLS, 0 = any free one"),
    Setting("tls_port", _port, "PORT", "8082, or none when that is taken", "gRPC port with TLS, 0 = none"),
    Setting("tls_only", _switch, "", "no", "leave the port without TLS closed"),
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
    Setting("tls_client_required", _switch, "", "no", "refuse connections to the TLS port without such a certificate"),
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
        _port,
        "PORT",
        "9464, or none when that is taken",
        "HTTP port of /metrics, /healthz and /readyz, 0 = off",
    ),
    Setting(
        "metrics_host",
        _hosts,
        "HOST",
        HOST,
        "address of the metrics port, or several; the port asks for no key and has no TLS",
    ),
    Setting("console_port", _port, "PORT", "0", "HTTP port of the web console, a process of its own, 0 = none"),
    Setting(
        "console_host",
        _hosts,
        "HOST",
        HOST,
        "address of the console, or several; an address other than the loopback needs --tls-cert",
    ),
    Setting(
        "max_size",
        _max_size,
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
    _choice("transport", TRANSPORTS, "the HTTP/2 implementation: python (PopMQ's own) or grpcio; auto: python", "auto"),
    Setting(
        "connections_per_address",
        _connections,
        "N",
        f"{CONNECTIONS_PER_ADDRESS}",
        "open connections of one client address, 1–1,000,000; raise it behind a proxy. Not with --transport grpcio",
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


class Settings(NamedTuple):
    """The options of a start. `sources`: for each setting that is not a default, where its value came from."""

    options: Options
    sources: dict[str, str]

    def __str__(self) -> str:
        named = (f"{name} = {shown(getattr(self.options, name))} ({source})" for name, source in self.sources.items())
        return ", ".join(named) or "all defaults"


def shown(value: object) -> str:
    """A value as its variable would name it."""
    return ",".join(value) if isinstance(value, tuple) else str(value)


class _Given(NamedTuple):
    value: Value
    source: str


def load(argv: list[str] | None, environ: Mapping[str, str]) -> Settings:
    """Reads all sources. Raises SettingError; argparse ends the process for a wrong flag (code 2) and for --help."""
    flags = vars(_parser().parse_args(argv))
    path = flags.pop(CONFIG, None) or _trimmed(environ.get(f"{PREFIX}{CONFIG.upper()}", ""))
    given = _from_file(pathlib.Path(path)) if path else {}
    given |= _from_variables(environ)
    for name, value in flags.items():
        given[name] = _Given(tuple(value) if BY_NAME[name].is_list else value, BY_NAME[name].flag)
    defaults = {setting.name: setting.default for setting in SETTINGS}
    options = Options(**{**defaults, **{name: one.value for name, one in given.items()}})
    if why := _of_another_engine(options.engine, given) or _fault(options):
        raise SettingError(why)
    return Settings(
        options, {setting.name: given[setting.name].source for setting in SETTINGS if setting.name in given}
    )


def parse(argv: list[str] | None = None) -> Settings:
    """The settings of this process; ends it with code 2 and one sentence when they are invalid."""
    try:
        return load(argv, os.environ)
    except SettingError as error:
        _parser().error(str(error))


class _Parser(argparse.ArgumentParser):
    def parse_args(self, args: Value = None, namespace: Value = None) -> Value:
        """Names the nearest flag for one that does not exist; argparse itself does not."""
        found, unknown = self.parse_known_args(args, namespace)
        if unknown:
            flag = unknown[0].partition("=")[0]
            self.error(f"there is no flag {flag}{nearest(flag, (setting.flag for setting in SETTINGS))}")
        return found


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="popmq serve",
        description="Serve a PopMQ broker from one data folder.",
        epilog="Each flag has a variable (POPMQ_MAX_SIZE for --max-size) and a key in the file (max_size). "
        "A flag decides before the variable, the variable before the file.",
        argument_default=argparse.SUPPRESS,
    )
    parser.add_argument("--config", metavar="FILE", help="settings in TOML; POPMQ_CONFIG names it too (default none)")
    for setting in SETTINGS:
        text = f"{setting.meaning} (default {setting.shown})"
        if setting.is_switch:
            parser.add_argument(setting.flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            action = "extend" if setting.is_list else "store"
            parser.add_argument(setting.flag, type=setting.read, action=action, metavar=setting.metavar, help=text)
    return parser


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the known name that it resembles, if there is one."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]}?" if found else ""


def _from_variables(environ: Mapping[str, str]) -> dict[str, _Given]:
    """Settings of the environment, trimmed. An empty variable counts as not set; unknown ones may be the clients'."""
    given = {}
    for variable, setting in BY_VARIABLE.items():
        text = _trimmed(environ.get(variable, ""))
        if text and not (setting.read is _port and text.startswith(_SERVICE_LINK)):
            given[setting.name] = _Given(_read(setting, text, variable), variable)
    return given


def _trimmed(text: str) -> str:
    """Removes white space at both ends, and the byte order mark with which some editors begin a file."""
    return text.strip().removeprefix("\ufeff").strip()


def _from_file(path: pathlib.Path) -> dict[str, _Given]:
    """Settings of a TOML file. Paths in it are relative to its folder, so that they mean the same for every caller."""
    given = {}
    for key, value in _tables(path).items():
        setting = BY_NAME.get(key)
        if setting is None:
            raise SettingError(f"{path}: there is no setting {key!r}{nearest(key, BY_NAME)}")
        if kind := _wrong_kind(setting, value):
            raise SettingError(f"{path}: {key} has to be {kind}")
        text = ",".join(value) if isinstance(value, list) else str(value)
        if text == "" or "\0" in text:
            raise SettingError(f"{path}: {key} is empty, or has a zero byte: name a value, or leave the line out")
        read = _read(setting, text, f"{path}: {key}")
        given[key] = _Given(path.parent / read if isinstance(read, pathlib.Path) else read, str(path))
    return given


def _wrong_kind(setting: Setting, value: object) -> str:
    """Returns the kind that a value of the file should have; "" if it has that kind."""
    if setting.is_switch:
        return "" if isinstance(value, bool) else "true or false"
    if setting.is_list:
        texts = value if isinstance(value, list) else [value]
        return "" if all(isinstance(one, str) for one in texts) else "a text, or a list of texts"
    return "" if isinstance(value, int | str) and not isinstance(value, bool) else "a text or a whole number"


def _tables(path: pathlib.Path) -> dict[str, Value]:
    import tomllib  # here: most starts have no file, and its parser is 4 ms of one

    try:
        return tomllib.loads(path.read_text("utf-8-sig"))
    except OSError as error:
        raise SettingError(f"{path}: {error.strerror}; name a file that is there with --config") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingError(f"{path} is not TOML: {error}") from None


def _read(setting: Setting, text: str, where: str) -> Value:
    try:
        return setting.read(text)
    except argparse.ArgumentTypeError as error:
        raise SettingError(f"{where}: {error}") from None


def _of_another_engine(engine: str, given: Mapping[str, _Given]) -> str:
    """The fault of a setting that was given and is not for this engine; "" = none."""
    for setting in SETTINGS:
        if setting.name in given and setting.engines and engine not in setting.engines:
            source, which = given[setting.name].source, " or ".join(setting.engines)
            named = source if source in (setting.flag, setting.variable) else f"{source}: {setting.name}"
            return f"{named} is a setting of --engine {which}: leave it out with --engine {engine}"
    return ""


def _fault(options: Options) -> str:
    """The fault of settings that contradict each other; "" = none."""
    if bool(options.tls_cert) != bool(options.tls_key):
        return "--tls-cert and --tls-key belong together: name both files, or neither"
    if not options.tls_port and (options.tls_only or options.tls_cert):
        return "--tls-port 0 serves no TLS: name a port, or leave out --tls-only, --tls-cert and --tls-key"
    if why := _client_certificates_fault(options):
        return why
    for setting in SETTINGS:
        if setting.is_list and (why := overlap(getattr(options, setting.name))):
            return f"{setting.flag}: {why}"
    if options.console_port and not options.tls_cert and not is_loopback(options.console_host):
        hosts = shown(options.console_host)
        return f"--console-host {hosts} would send secrets in clear: name --tls-cert and --tls-key too"
    if options.console_port and options.tls_only and options.tls_cert:
        return "--console-port cannot name the host of --tls-cert: use `popmq console --tls --endpoint HOST:PORT`"
    return ""


def _client_certificates_fault(options: Options) -> str:
    """The fault of the settings of client certificates; "" = none."""
    if options.tls_client_required and not options.tls_client_ca:
        return "--tls-client-required compares certificates with the authorities of --tls-client-ca: name that file"
    if not options.tls_client_ca:
        return ""
    if not options.tls_port:
        return "--tls-port 0 serves no TLS: name a port, or leave out --tls-client-ca"
    if not (options.tls_client_required or options.access_keys):
        return "--tls-client-ca finds a client's access key: name --access-keys, or --tls-client-required"
    if options.transport == "grpcio" and not options.tls_client_required:
        return "--transport grpcio asks for client certificates only with --tls-client-required"
    if options.console_port and options.tls_only and options.tls_client_required:
        return "--console-port has no client certificate to show: leave the port without TLS open, or serve no console"
    return ""
