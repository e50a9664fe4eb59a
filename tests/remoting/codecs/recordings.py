"""Answers that real brokers gave, 5.3.3 and 5.5.0 (real/recording.py writes them)."""

import json
from functools import cache
from pathlib import Path

from popmq_remoting.wire.command import Command
from popmq_remoting.wire.frames import CommandReader

RELEASES = ("5.3.3", "5.5.0")


@cache
def recorded(release: str) -> dict[str, Command]:
    """By `CODE answered CODE`, or `asked CODE` for requests of brokers; `binary` before it for binary headers."""
    frames = json.loads((Path(__file__).parent / f"rocketmq-{release}.json").read_text())
    commands = {}
    for name, raw in frames.items():
        (commands[name],) = CommandReader().feed(bytes.fromhex(raw))
    return commands
