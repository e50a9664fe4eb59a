"""The settings of `popmq serve`: one table for flags, variables, keys of the file, help and docs/operations.md.

    --max-size 20GiB  >  POPMQ_MAX_SIZE=20GiB  >  max_size = "20GiB" in --config FILE  >  the default

The first source that names a setting decides. This package and options.py need the standard library only: the command
line makes its options from this table without the extra `server`.
"""

import argparse
import os
import pathlib
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from popmq_server.options import Options
from popmq_server.settings.contradictions import contradiction
from popmq_server.settings.readers import port, size
from popmq_server.settings.table import BY_NAME, BY_VARIABLE, PREFIX, SETTINGS, Setting, Value, shown

__all__ = [
    "BY_VARIABLE",
    "CONFIG",
    "SETTINGS",
    "Setting",
    "SettingError",
    "Settings",
    "load",
    "misspelt",
    "parse",
    "shown",
    "size",
]

#: The flag and the variable that name the file; the file itself cannot.
CONFIG = "config"
#: Kubernetes and Docker set POPMQ_PORT to this for a service named popmq; it is not meant as a setting.
_SERVICE_LINK = "tcp://"
#: The one variable of the clients whose name resembles that of a setting.
_CLIENTS_KEY = f"{PREFIX}ACCESS_KEY"


class SettingError(Exception):
    """A setting that cannot be used: one sentence that names its source."""


class Settings(NamedTuple):
    """The options of a start. `sources`: for each setting that is not a default, where its value came from."""

    options: Options
    sources: dict[str, str]

    def __str__(self) -> str:
        named = (f"{name} = {shown(getattr(self.options, name))} ({source})" for name, source in self.sources.items())
        return ", ".join(named) or "all defaults"


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
    if why := _of_another_engine(options.engine, given) or contradiction(options):
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
        usage="%(prog)s [OPTIONS]; --help lists them",  # argparse would put thirty lines before an error
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


def misspelt(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each variable that is no setting, and resembles one. The others are those of clients, tools and
    service links, so none of them ends the start.
    """
    unknown = [name for name in environ if name.startswith(PREFIX) and name not in BY_VARIABLE and name != _CLIENTS_KEY]
    known = [variable.removeprefix(PREFIX) for variable in BY_VARIABLE]
    resembled = ((name, nearest(name.removeprefix(PREFIX), known, 0.8, PREFIX)) for name in sorted(unknown))
    return [f"{name} is no setting of the broker{meant}" for name, meant in resembled if meant]


def nearest(name: str, known: Iterable[str], likeness: float = 0.6, prefix: str = "") -> str:
    """The end of a sentence about an unknown name: the known name that it resembles, if there is one.

    `likeness`: from 0 to 1, how alike both have to be; `prefix`: what stands before the known name in the sentence.
    """
    import difflib  # only for errors

    found = [f"{prefix}{one}" for one in difflib.get_close_matches(name, list(known), 1, likeness)]
    return f"; did you mean {found[0]}?" if found else ""


def _from_variables(environ: Mapping[str, str]) -> dict[str, _Given]:
    """Settings of the environment, trimmed. An empty variable counts as not set; unknown ones may be the clients'."""
    given = {}
    for variable, setting in BY_VARIABLE.items():
        text = _trimmed(environ.get(variable, ""))
        if text and not (setting.read is port and text.startswith(_SERVICE_LINK)):
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
