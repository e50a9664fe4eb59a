"""Answers that real brokers gave, 5.3.3 and 5.5.0: each is read by the reader of its request."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from popmq_remoting.errors import BrokerRefused
from popmq_remoting.requests import bodies, groups, members, name_server, popping, pulling, sending, topics
from popmq_remoting.routing.route import read_cluster, read_route
from popmq_remoting.wire.command import Response
from tests.remoting.codecs.recordings import RELEASES, recorded


def field(name: str) -> Callable[[Response], int]:
    return lambda answer: answer.expect().number(name)


#: What the answer 0 to each code says.
READERS: dict[str, Callable[[Response], Any]] = {
    "11": pulling.pulled,
    "12": popping.messages,
    "14": field("offset"),
    "21": lambda answer: [*topics.topic_pieces(answer)],
    "26": topics.properties_of,
    "28": lambda answer: bodies.table(answer, "table"),
    "30": field("offset"),
    "33": popping.messages,
    "38": members.ids,
    "101": lambda answer: answer.expect().text("value"),
    "105": lambda answer: read_route(answer.body).queues,
    "106": lambda answer: read_cluster(answer.body).brokers,
    "201": groups.group_table,
    "202": topics.queue_table,
    "204": members.connections,
    "206": name_server.topics,
    "219": lambda answer: bodies.table(answer, "table"),
    "222": topics.queue_table,
    "300": lambda answer: bodies.names(answer, "groupList"),
    "307": lambda answer: answer.expect().body,
    "309": lambda answer: answer.expect().body,
    "32": field("timestamp"),
    "343": lambda answer: bodies.names(answer, "topicList"),
    "203": members.connections,
    "208": topics.queue_table,
    "224": name_server.topics,
    "310": sending.sent,
    "328": members.producers_by_group,
    "320": sending.sent,
    "351": topics.topic_config,
    "402": groups.request_modes,
    "907": bodies.members,
    "41": members.locked,
    "200050": lambda answer: popping.popped(answer, "a").rows,
    "200052": popping.messages,
    "200054": popping.has_messages,
}
#: Answers without anything in them but their code.
PLAIN = {
    *("15", "17", "34", "35", "36", "37", "42", "100", "102", "200", "207", "215", "216", "314"),
    *("370", "401", "200051", "200151"),
}
#: Numbers that may be 0, and a change that needs its handle.
OTHERS = {"29", "31", "200053"}


def successes(release: str, form: str = "") -> dict[str, Response]:
    """The answers 0 by the code of their request; `form`: "binary " for those with such headers."""
    pattern = re.compile(rf"{form}(\d+) answered 0")
    found = ((pattern.fullmatch(name), command) for name, command in recorded(release).items())
    return {match[1]: command.response() for match, command in found if match}


@pytest.mark.parametrize("release", RELEASES)
def test_each_answer_is_read_by_the_reader_of_its_request(release: str) -> None:
    found = successes(release)
    assert READERS.keys() - found.keys() == set()
    assert found.keys() - READERS.keys() - PLAIN - OTHERS == set()
    for code, read in READERS.items():
        assert read(found[code]), code


@pytest.mark.parametrize("release", RELEASES)
def test_answers_with_binary_headers_are_read_by_the_same_readers(release: str) -> None:
    found = successes(release, "binary ")
    assert {"105", "310", "200050"} <= found.keys()
    for code in found.keys() & READERS.keys():
        assert READERS[code](found[code]), code


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize(
    ("name", "read", "empty"),
    [
        ("11 answered 19", pulling.pulled, None),
        ("12 answered 22", popping.messages, []),
        ("200050 answered 210", lambda answer: popping.popped(answer, "a").rows, []),
    ],
)
def test_answers_that_there_is_nothing_are_no_errors(
    release: str, name: str, read: Callable[[Response], Any], empty: list[Any] | None
) -> None:
    found = read(recorded(release)[name].response())
    assert (found.messages if empty is None else found) == []


@pytest.mark.parametrize("release", RELEASES)
def test_a_popped_message_is_whole_and_has_its_handle(release: str) -> None:
    rows = popping.popped(recorded(release)["200050 answered 0"].response(), "a").rows
    assert len(rows) >= 1
    assert all(row.message.is_sound for row in rows)
    assert all(row.handle.broker == "a" and row.handle.queue_offset == row.message.queue_offset for row in rows)
    assert all(row.handle.lapses_ms > row.message.stored_ms for row in rows)


@pytest.mark.parametrize("release", RELEASES)
def test_statistics_have_objects_as_keys(release: str) -> None:
    answer = recorded(release)["202 answered 0"].response()
    with pytest.raises(ValueError, match="property name"):
        json.loads(answer.body)
    assert {key[1:] for key in topics.queue_table(answer)} == {("a", 0), ("a", 1)}


@pytest.mark.parametrize("release", RELEASES)
def test_a_broker_asks_how_a_transaction_ended(release: str) -> None:
    check = sending.check(recorded(release)["asked 39"].request())
    assert check.message.body == b"half"
    assert check.half.group == check.half.topic == check.message.topic
    assert check.half.half_queue_offset >= 0


@pytest.mark.parametrize("release", RELEASES)
def test_a_refusal_names_its_code_and_remark(release: str) -> None:
    with pytest.raises(BrokerRefused, match="No topic route info"):
        recorded(release)["105 answered 17"].response().expect()
