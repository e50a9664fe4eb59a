"""SIGHUP: reads the settings, the access keys and the certificate again; the log says what changed.

A setting that cannot change while the broker runs is reported, and keeps its value until the restart. Settings that
cannot be used change nothing: the broker goes on with those that it has.
"""

import logging
import os
from collections.abc import Callable, Iterator

from popmq_server import logs
from popmq_server.settings import (
    SETTINGS,
    SettingError,
    Settings,
    load,
    shown,
)

log = logging.getLogger("popmq.reload")


class Reload:
    """Call it once for each SIGHUP, in the event loop. `argv`: the flags of this process, which decide as at start.

    `contents`: reads the files that settings name, and returns what changed.
    """

    def __init__(self, argv: list[str] | None, settings: Settings, contents: Callable[[], list[str]]) -> None:
        self._argv = argv
        self._options = settings.options
        self._contents = contents

    def __call__(self) -> None:
        try:
            fresh = load(self._argv, os.environ)
        except SettingError as error:
            log.error("reload: the settings cannot be used, nothing changed: %s", error)
            return
        changes = list(self._changed(fresh))
        logs.apply(self._options.log_level, self._options.log_format)
        changes += self._contents()
        log.info("reload: %s", "; ".join(changes) or "nothing changed")

    def _changed(self, fresh: Settings) -> Iterator[str]:
        """Takes over the settings that may change; says so for each, and for those that need a restart."""
        for setting in SETTINGS:
            before, after = getattr(self._options, setting.name), getattr(fresh.options, setting.name)
            if before == after:
                continue
            if setting.reload == "value":
                self._options = self._options._replace(**{setting.name: after})
                yield f"{setting.name} is {after}, it was {before}"
            else:
                yield f"{setting.name} stays {shown(before)}: {shown(after)} needs a restart"
