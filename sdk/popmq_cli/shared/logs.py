"""The log of `popmq work`: a line for people, or one JSON object, as `popmq serve --log-format json` writes it."""

import json
import logging
import os
from datetime import UTC, datetime

from popmq_cli.shared import visible

FORMATS = ("text", "json")
_TEXT = "%(asctime)s %(process)d %(levelname)s %(name)s: %(message)s"


class JsonFormatter(logging.Formatter):
    """One object in one line, for collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "process": os.getpid(),
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return visible.in_json(json.dumps(line, ensure_ascii=False, default=str))


def start(level: str, form: str) -> None:
    """Sends the log of this process to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else logging.Formatter(_TEXT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
