"""Contexts: brokers that the command line knows by name, in one file that only its owner may read.

    $XDG_CONFIG_HOME/popmq/contexts.json, else ~/.config/popmq/contexts.json       mode 600
    {"selected": "prod", "contexts": {"prod": {"endpoint": "broker:8082", "tls": true, …}}}

Which broker a command asks: options come first; then the context that --context or POPMQ_CONTEXT names; then
POPMQ_ENDPOINT and the other variables; then the selected context. A selected context is ignored as soon as an option
or variable names an endpoint, so that no secret of one broker is sent to another.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import click

#: The fields of a context: parameters of popmq.Client.
FIELDS = ("endpoint", "tls", "tls_ca", "client_cert", "client_key", "access_key", "secret", "secret_file")
_OTHERS_MAY = 0o077

Context = Mapping[str, Any]


class Contexts:
    """The contexts of one file; `selected` is "" for none."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.selected = ""
        self.by_name: dict[str, dict[str, Any]] = {}
        try:
            with open(path, encoding="utf-8-sig") as file:
                _private(path, os.fstat(file.fileno()).st_mode)
                held = json.load(file)
            self.selected = str(held["selected"])
            self.by_name = {str(name): dict(fields) for name, fields in held["contexts"].items()}
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise click.ClickException(f"{path} cannot be read ({error}): repair or remove it") from None

    def named(self, name: str) -> Context:
        """The context of this name. Raises UsageError if there is none."""
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name))
            has = f"there are {known}" if known else f"add it: popmq context add {name} --endpoint HOST:PORT"
            raise click.UsageError(f"there is no context {name!r}; {has}")
        return self.by_name[name]

    def save(self) -> None:
        """Replaces the file in one step: a reader sees the old or the new one."""
        import tempfile  # only a change needs it

        folder = os.path.dirname(self._path)
        handle, part = tempfile.mkstemp(dir=folder, prefix=".contexts-")  # mode 600
        try:
            with os.fdopen(handle, "w") as file:
                json.dump({"selected": self.selected, "contexts": self.by_name}, file, indent=2)
                file.write("\n")
                file.flush()
                os.fsync(file.fileno())
            os.replace(part, self._path)
        except BaseException:
            os.unlink(part)
            raise


def _private(path: str, mode: int) -> None:
    if mode & _OTHERS_MAY:
        raise click.ClickException(f"{path} may hold secrets and others may read it: chmod 600 {path}")


def path() -> str:
    """Where the contexts of this user are."""
    home = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return os.path.join(home, "popmq", "contexts.json")


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    os.makedirs(folder, exist_ok=True, mode=0o700)
    handle = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


@contextmanager
def changed() -> Iterator[Contexts]:
    """The contexts, stored at the end of the block; another change waits for it."""
    try:
        with _locked(os.path.dirname(path())):
            contexts = Contexts(path())
            yield contexts
            contexts.save()
    except OSError as error:
        raise click.ClickException(f"{path()} cannot be written: {error.strerror}") from None


def in_use(named: str | None, endpoint_is_named: bool) -> Context:
    """The context that a command takes: `named`, or the selected one if nothing else names an endpoint; {}: none."""
    if named:
        return Contexts(path()).named(named)
    if endpoint_is_named:
        return {}
    contexts = Contexts(path())
    return contexts.named(contexts.selected) if contexts.selected else {}
