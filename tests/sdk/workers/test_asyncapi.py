"""`worker.asyncapi`: topics, groups and payloads of handlers, as the worker itself reads them."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal
from uuid import UUID

import jsonschema
import pytest

import popmq
from tests.sdk.workers.documented import Amount, Color, Line, Mail, Order, Paid, Seen, shop


def worker_of(*kinds: Any) -> popmq.Worker:
    """A worker with a handler for each type, of topics t0, t1, …"""
    worker = popmq.Worker("mq.example:8081")
    for number, kind in enumerate(kinds):

        def handle(payload: Any) -> None: ...

        handle.__annotations__["payload"] = kind
        worker.on(f"t{number}", group="g")(handle)
    return worker


def payload(document: dict[str, Any], topic: str = "t0") -> dict[str, Any]:
    """The schema of a topic's only message, which can be used alone."""
    (reference,) = document["channels"][topic]["messages"].values()
    message = document["components"]["messages"][reference["$ref"].rpartition("/")[2]]
    return {**message["payload"], "components": document["components"]}


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (int, [1, -3], ["1", 1.5, None, True]),
        (float, [1, 2.5], ["2.5", None]),
        (bool, [True], [1, "true"]),
        (None | int, [None, 1], ["x"]),
        (list[int], [[], [1, 2]], [[1, "2"], {}, None]),
        (set[str], [["a"]], [["a", 1], "a"]),
        (tuple[int, str], [[1, "a"]], [[1], [1, "a", 2], ["a", 1]]),
        (tuple[int, ...], [[], [1, 2]], [["a"]]),
        (dict[str, int], [{}, {"a": 1}], [{"a": "b"}, []]),
        (Mapping[str, Any], [{"a": [1]}], [[1]]),
        (Literal["a", 3], ["a", 3], ["b", 4]),
        (Color, ["red"], ["green", 1]),
        (Amount, [1.5], ["x"]),
        (Line, [{"sku": "a"}, {"sku": "a", "count": 2, "more": 1}], [{}, {"sku": 1}, {"sku": "a", "count": "2"}, []]),
        (
            Order,
            [{"number": 1, "lines": []}, {"number": 1, "lines": [{"sku": "a"}], "parent": {"number": 2, "lines": []}}],
            [{"number": 1}, {"number": 1, "lines": [{}]}, {"number": 1, "lines": [], "parent": {"number": "x"}}],
        ),
        (Mail, [{"to": "a"}, {"to": "a", "cc": ["b"]}], [{}, {"to": "a", "cc": "b"}]),
        (
            Paid,
            [{"amount": 1, "how": "card"}, {"amount": 1, "how": "cash", "before": None}],
            [{"amount": 1}, {"amount": 1, "how": "no"}],
        ),
        (Seen, [{"place": "a"}, {"place": "a", "after": {"place": "b"}}], [{}, {"place": "a", "after": {}}]),
        (list[Order | Mail], [[{"to": "a"}, {"number": 1, "lines": []}]], [[{"from": "a"}]]),
    ],
    ids=str,
)
def test_a_schema_allows_what_the_worker_reads_and_nothing_else(kind: Any, good: list[Any], bad: list[Any]) -> None:
    """The same bodies go through the handler's own conversion, so neither can say more than the other."""
    worker = worker_of(kind)
    schema = payload(worker.asyncapi())
    check = jsonschema.Draft7Validator(schema)
    read: Callable[[popmq.Delivery], Any] = worker.handlers[0].arguments
    for value in good:
        assert read(popmq.Delivery(json.dumps(value).encode()))
        assert not list(check.iter_errors(value)), value
    for value in bad:
        with pytest.raises(Exception, match=r"."):
            read(popmq.Delivery(json.dumps(value).encode()))
        assert list(check.iter_errors(value)), value


def test_texts_with_a_form_name_it() -> None:
    schema = payload(worker_of(UUID).asyncapi())
    assert (schema["type"], schema["format"]) == ("string", "uuid")


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for name, each in value.items():
            if name == "$ref":
                yield each
            else:
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def found(document: dict[str, Any], reference: str) -> Any:
    place: Any = document
    for part in reference.removeprefix("#/").split("/"):
        place = place[part]
    return place


def test_handlers_are_operations_of_channels_and_messages_are_shared() -> None:
    document = shop().asyncapi("the shop", "1.2")
    assert document["info"] == {"title": "the shop", "version": "1.2"}
    assert document["servers"]["broker"] == {"host": "mq.example:8081", "protocol": "popmq"}
    assert document["channels"]["orders"]["messages"].keys() == {"Order", "archive"}
    assert document["channels"]["_DLQ_billing"]["address"] == "%DLQ%billing"
    bill, audit = (document["operations"][name] for name in ("billing.orders", "audit.orders"))
    assert (bill["action"], bill["summary"]) == ("receive", "Bills an order.")
    assert bill["x-popmq"] == {"group": "billing", "tag": "new || paid"}
    assert bill["messages"] == audit["messages"] == [{"$ref": "#/channels/orders/messages/Order"}]
    assert document["components"]["schemas"]["Order"]["description"] == "An order of the shop."
    assert document["components"]["schemas"]["Line"]["properties"]["count"] == {"type": "integer", "default": 1}


def test_messages_without_json_say_what_they_are() -> None:
    messages = shop().asyncapi()["components"]["messages"]
    assert messages["archive"]["contentType"] == "application/octet-stream"
    assert messages["read"]["contentType"].startswith("text/plain")
    assert messages["repair"] == {"name": "repair"}
    assert messages["rows"] == {"name": "rows"}, "only `convert` knows the format"


def test_each_reference_leads_to_something_and_types_of_one_name_stay_apart() -> None:
    document = shop().asyncapi()
    for reference in references(document):
        assert found(document, reference) != {}, reference
    schemas = document["components"]["schemas"]
    assert "sku" in schemas["Line"]["properties"]
    assert "iban" in schemas["Line2"]["properties"]
    lines, accounts = payload(document, "lines"), payload(document, "accounts")
    assert (lines["$ref"], accounts["$ref"]) == ("#/components/schemas/Line", "#/components/schemas/Line2")
