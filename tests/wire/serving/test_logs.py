"""The log: each line has its zone, level and request; JSON has one object in each line."""

import io
import json
import logging
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server import logs
from popmq_server.protocols.native import inspection
from tests.wire.stubs import Stubs, refusal

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (\w+) ([\w.]+)(?: \[(.+?)\])?: (.*)")


class Call:
    """A running call with these headers."""

    def __init__(self, *headers: tuple[str, str | bytes]) -> None:
        self._headers = headers

    def invocation_metadata(self) -> Any:
        return self._headers


class Written:
    """A logger whose lines are kept."""

    def __init__(self, formatter: logging.Formatter) -> None:
        self._stream = io.StringIO()
        self.handler = logging.StreamHandler(self._stream)
        self.handler.setFormatter(formatter)
        self.log = logging.Logger("popmq.test")
        self.log.addHandler(self.handler)

    @property
    def text(self) -> str:
        return self._stream.getvalue()


@pytest.fixture(autouse=True)
def call() -> Iterator[None]:
    token = logs.CALL.set(None)
    yield
    logs.CALL.reset(token)


def test_a_line_of_text_has_zone_level_part_request_and_fields() -> None:
    written = Written(logs.TextFormatter())
    logs.CALL.set(Call(("x-request-id", "abc-1")))
    written.log.warning("%d keys", 3, extra={"fields": {"key": "root", "why": "a b"}})
    found = LINE.fullmatch(written.text.rstrip("\n"))
    assert found
    assert found.groups() == ("WARNING", "popmq.test", "abc-1", '3 keys key=root why="a b"')


def test_a_line_outside_of_a_call_names_no_request() -> None:
    written = Written(logs.TextFormatter())
    written.log.info("started")
    found = LINE.fullmatch(written.text.rstrip("\n"))
    assert found
    assert found.groups() == ("INFO", "popmq.test", None, "started")


def test_json_has_one_object_in_each_line_with_the_traceback_inside() -> None:
    written = Written(logs.JsonFormatter())
    logs.CALL.set(Call(("x-mq-request-id", "r-1")))
    try:
        raise ValueError("two\nlines")
    except ValueError:
        written.log.exception("Send raised", extra={"fields": {"key": "root"}})
    (line,) = written.text.splitlines()
    found = json.loads(line)
    assert found.pop("exception").endswith("ValueError: two\nlines")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:]+\.\d{3}[+-]\d\d:\d\d", found.pop("time"))
    assert found == {
        "level": "ERROR",
        "logger": "popmq.test",
        "message": "Send raised",
        "request_id": "r-1",
        "key": "root",
    }


def test_an_id_is_made_once_for_a_call_without_one() -> None:
    logs.CALL.set(Call(("x-request-id", "")))
    first = logs.request_id()
    assert re.fullmatch(r"[0-9a-f]{16}", first)
    assert logs.request_id() == first
    logs.CALL.set(Call())
    assert logs.request_id() not in ("", first)


def test_a_clients_id_can_neither_forge_a_line_nor_fill_the_log() -> None:
    logs.CALL.set(Call(("x-request-id", "a]: INFO\n\x1b[31m" + "x" * 1_000)))
    found = logs.request_id()
    assert found.startswith("a?:?INFO??")
    assert len(found) == logs.REQUEST_ID_MAX


#: Characters that end a line for some reader, control a terminal, or turn the direction of a text.
HOSTILE = "a\n\r\x1b[2J\x7f\x85\x9b31m\u061c\u200e\u200f\u2028\u2029\u202a\u202e\u2066\u2069b"


def hidden(text: str) -> list[str]:
    """The characters of a text that are not shown as themselves; lines end with a newline only."""
    return [one for one in text.replace("\n", "") if unicodedata.category(one) in ("Cc", "Cf", "Zl", "Zp")]


def test_no_text_of_a_client_forges_a_line_or_hides_a_part_of_one() -> None:
    as_text, as_json = Written(logs.TextFormatter()), Written(logs.JsonFormatter())
    for written in (as_text, as_json):
        try:
            raise ValueError(HOSTILE)
        except ValueError:
            written.log.exception("client %s", HOSTILE, extra={"fields": {"id": HOSTILE, "hidden": "a\u202eb"}})
        assert hidden(written.text) == []
    first, *rest = as_text.text.splitlines()
    assert LINE.fullmatch(first)
    assert 'b id="a\\n\\r\\u001b[2J' in first
    assert first.endswith('hidden="a\\u202eb"')
    assert rest[0].startswith("Traceback")
    (line,) = as_json.text.splitlines()
    found = json.loads(line)
    assert (found["message"], found["id"]) == (f"client {HOSTILE}", HOSTILE)


def test_an_escape_in_a_field_differs_from_one_that_its_client_wrote() -> None:
    written = Written(logs.TextFormatter())
    written.log.info("x", extra={"fields": {"real": "\u202e", "typed": "\\u202e"}})
    assert written.text.rstrip("\n").endswith('real="\\u202e" typed="\\\\u202e"')


def test_the_form_and_the_level_change_while_the_broker_runs(capfd: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, handlers = root.level, list(root.handlers)
    try:
        logs.start("warning", "text")
        logging.getLogger("form.test").info("hidden")
        logs.apply("info", "json")
        logging.getLogger("form.test").info("shown")
    finally:
        logging.captureWarnings(False)
        root.setLevel(before)
        for handler in set(root.handlers) - set(handlers):
            handler.flush()
            root.removeHandler(handler)
    assert json.loads(capfd.readouterr().err)["message"] == "shown"


def test_a_bug_names_the_request_in_the_answer_and_in_the_log(stubs: Stubs, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(kind: Any, raw: bytes) -> Any:
        raise ValueError("a bug")

    monkeypatch.setattr(inspection, "read", fail)
    ids: list[str] = []
    remember = logging.Handler()
    remember.emit = lambda record: ids.append(logs.request_id())  # type: ignore[method-assign]
    logging.getLogger("popmq.protocols").addHandler(remember)
    try:
        refused = refusal(stubs.broker.Peek, pb.PeekRequest(topic="t", group="g"))
    finally:
        logging.getLogger("popmq.protocols").removeHandler(remember)
    assert refused.code == "INTERNAL"
    assert len(ids) == 1
    assert f"it names request {ids[0]}" in refused.info.action
