"""`popmq verify` without its command line: the plan that the user's settings make."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

from popmq_server.settings import SettingError, load
from popmq_verify.stages import STAGES, Plan

#: The engine whose promises depend on this machine.
EMBEDDED = "embedded"
#: Settings of the user that a scratch broker gets too. The others are about ports, TLS, keys, logs and the console.
TAKEN = ("sync", "journal", "transport", "max_size", "connections_per_address")


def plan(config: str | None, minutes: float, scratch: str | None, seed: int | None) -> Plan:
    """The plan for settings as `popmq serve` would find them. Raises ValueError, a sentence."""
    try:
        settings = load(["--config", config] if config else [], os.environ)
    except SettingError as error:
        raise ValueError(str(error)) from None
    if settings.options.engine != EMBEDDED:
        raise ValueError(
            f"engine = {settings.options.engine} ({settings.sources['engine']}): a gateway keeps no messages, and this "
            "tests the machine and the disk of a broker that does; `popmq cluster check` looks at those of a cluster"
        )
    flags = [
        word
        for name in TAKEN
        if name in settings.sources
        for word in (f"--{name.replace('_', '-')}", str(getattr(settings.options, name)))
    ]
    folder = Path(scratch) if scratch else _beside(settings.options.data)
    if not folder.is_dir():
        raise ValueError(f"{folder} does not exist: make it, or name another one with --scratch")
    if not os.access(folder, os.W_OK):
        raise ValueError(f"this user may not write to {folder}: name another folder with --scratch")
    if seed is None:
        seed = random.SystemRandom().randrange(1 << 32)
    return Plan(folder.resolve(), tuple(flags), settings.options.sync, minutes, seed)


def refuse_unwritable(report: Path) -> None:
    """Raises ValueError, a sentence, if the page could not be written at the end of the test."""
    place, needed = (report, os.W_OK) if report.exists() else (report.absolute().parent, os.W_OK | os.X_OK)
    if report.is_dir() or not os.access(place, needed):
        raise ValueError(f"{report} cannot be written: name another file with --report")


def chosen(names: Sequence[str]) -> list[str]:
    """The stages of these names, all without one. Raises ValueError."""
    if unknown := [name for name in names if name not in STAGES]:
        raise ValueError(f"there is no stage {unknown[0]!r}: {', '.join(STAGES)}")
    return [name for name in STAGES if not names or name in names]


def settings_of(plan: Plan) -> str:
    """The settings in words."""
    return " ".join(plan.flags) or "default settings"


def _beside(data: Path) -> Path:
    """The nearest folder above the data folder that exists: on the same disk."""
    return next(folder for folder in data.absolute().parents if folder.is_dir())
