"""The log on standard error: lines of text or JSON, with time zone, level and the id of the request.

    2026-11-22T20:03:53.120+00:00 ERROR popmq.protocols [3f2a9c01d4e5b677]: Send raised
    {"time": "2026-11-22T20:03:53.120+00:00", "level": "ERROR", "logger": "popmq.protocols", "message": "Send raised" …}

A record may carry `extra={"fields": {…}}`: more keys in JSON, `name=value` at the end of a line of text.
"""

import contextvars
import json
import logging
import os
import re
import secrets
import sys
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from popmq_server.line_writer import LineWriter

#: Headers that name a request: the common one, and that of the official RocketMQ clients.
REQUEST_ID_HEADERS = ("x-request-id", "x-mq-request-id")
#: Longer ids are cut: a client must not fill the log of the broker.
REQUEST_ID_MAX = 64
#: Everything else in a client's id becomes "?", so that it cannot look like the rest of a line.
_UNSAFE = re.compile(r"[^\w.:/+=@-]", re.ASCII)

#: Controls, line and paragraph separators, marks that change the direction of a text: a terminal or a reader of the log
#: would take what follows for another line, or show it in another order.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


#: The running call: an object with `invocation_metadata()` and `time_remaining()`. Setting it costs less than reading
#: its headers, and few calls are ever logged.
CALL: contextvars.ContextVar[Any] = contextvars.ContextVar("popmq_call", default=None)
_MADE: contextvars.ContextVar[tuple[object, str]] = contextvars.ContextVar("popmq_request_id", default=(None, ""))


def request_id() -> str:
    """The id of the running call: the client's own, else one made now and kept for the call; "" outside of calls."""
    call = CALL.get()
    if call is None:
        return ""
    for name, value in call.invocation_metadata() or ():
        if name in REQUEST_ID_HEADERS and value and isinstance(value, str):
            return _UNSAFE.sub("?", value[:REQUEST_ID_MAX])
    made_for, made = _MADE.get()
    if made_for is not call:
        made = secrets.token_hex(8)
        _MADE.set((call, made))
    return made


def visible(text: str) -> str:
    """The text with an escape in place of each character that could forge a line or hide a part of one."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Formatter(logging.Formatter):
    """`worker`: the number of this process, where several serve the same ports."""

    def __init__(self, worker: int = 0) -> None:
        super().__init__()
        self._worker = worker


class TextFormatter(_Formatter):
    """One line for people, and a traceback below it."""

    def format(self, record: logging.LogRecord) -> str:
        request = f" [{found}]" if (found := request_id()) else ""
        fields = "".join(f" {name}={_word(value)}" for name, value in _fields(record).items())
        message = visible(record.getMessage())
        worker = f" [worker {self._worker}]" if self._worker else ""
        text = f"{_time(record)} {record.levelname} {record.name}{worker}{request}: {message}{fields}"
        more = "\n".join(map(visible, _exception(self, record).split("\n")))
        return f"{text}\n{more}" if more else text


class JsonFormatter(_Formatter):
    """One object in one line, for collectors."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._worker:
            line["worker"] = self._worker
        if found := request_id():
            line["request_id"] = found
        line |= _fields(record)
        if more := _exception(self, record):
            line["exception"] = more
        return visible(json.dumps(line, ensure_ascii=False, default=str))


_FORMATTERS: dict[str, type[_Formatter]] = {"text": TextFormatter, "json": JsonFormatter}


class _Handler(logging.Handler):
    """The handler of `popmq serve`; programs with an embedded broker keep their own."""

    def __init__(self, handle: int, worker: int) -> None:
        super().__init__()
        self.worker = worker
        self.lines = LineWriter(handle, self._dropped)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self.lines.put(f"{self.format(record)}\n")
        except Exception:
            self.handleError(record)

    def _dropped(self, count: int) -> str:
        text = f"{count} lines of the log were dropped: they had no reader, or the system refused them"
        return f"{self.format(logging.makeLogRecord({'name': 'popmq', 'levelname': 'WARNING', 'msg': text}))}\n"

    def flush(self) -> None:
        """Waits a moment for a slow reader: at the end of the process."""
        self.lines.flush()


def start(level: str, form: str, worker: int = 0) -> None:
    """Sends the log of this process to standard error; nowhere if that was closed before the process began.

    `worker`: the number of this process, which its lines have.
    """
    if sys.stderr is not None:
        logging.getLogger().addHandler(_Handler(os.dup(sys.stderr.fileno()), worker))
    logging.captureWarnings(True)
    apply(level, form)


def apply(level: str, form: str) -> None:
    """Sets the level and the form; also while the broker runs."""
    root = logging.getLogger()
    root.setLevel(level.upper())
    for handler in root.handlers:
        if isinstance(handler, _Handler):
            handler.setFormatter(_FORMATTERS[form](handler.worker))


def tell(text: str) -> None:
    """Writes lines for people into the log's file, after the lines of the log before them."""
    for handler in logging.getLogger().handlers:
        if isinstance(handler, _Handler):
            handler.lines.put(text)


def dropped() -> int:
    """The lines of the log that were dropped since the start."""
    return sum(handler.lines.dropped for handler in logging.getLogger().handlers if isinstance(handler, _Handler))


def lines(texts: Iterable[str], form: str) -> str:
    """Lines for people at a start, `popmq: TEXT`; with the form "json" objects like those of the log."""
    if form != "json":
        return "".join(f"popmq: {text}\n" for text in texts)
    records = ({"name": "popmq", "levelname": "INFO", "msg": text} for text in texts)
    formatter = JsonFormatter()
    return "".join(f"{formatter.format(logging.makeLogRecord(record))}\n" for record in records)


def _time(record: logging.LogRecord) -> str:
    """Local time with its distance from UTC."""
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields: dict[str, object] = getattr(record, "fields", {})
    return fields


def _word(value: object) -> str:
    """A value in a line of text: quoted if it could be taken for more than one."""
    text = str(value)
    quoted = not text or re.search(r'[\s"=\\]', text) or _HIDDEN.search(text)
    return visible(json.dumps(text, ensure_ascii=False)) if quoted else text


def _exception(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    parts += [formatter.formatStack(record.stack_info)] if record.stack_info else []
    return "\n".join(parts)
