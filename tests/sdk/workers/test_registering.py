"""What may be a handler, and what is refused when it is registered or raised."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import threading
from pkgutil import resolve_name
from typing import Any

import pytest

import popmq


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda: None, "has to take one payload, one popmq.Delivery, or both"),
        (lambda a, *, b: None, "needs 'b' by keyword"),
        (eval("lambda order: 1", {}), ""),
    ],
)
def test_a_function_that_cannot_be_called_is_refused_when_it_is_registered(function: Any, text: str) -> None:
    if text:
        with pytest.raises(TypeError, match=text):
            popmq.Worker().on("orders", group="billing")(function)
    else:
        popmq.Worker().on("orders", group="billing")(function)


def test_a_type_that_json_cannot_become_is_refused_when_it_is_registered() -> None:
    def handler(payload: threading.Thread) -> None: ...

    with pytest.raises(TypeError, match="a body cannot be read as"):
        popmq.Worker().on("orders", group="billing")(handler)
    popmq.Worker().on("orders", group="billing", convert=lambda delivery: threading.Thread())(handler)


def test_an_option_that_on_does_not_have_is_named_with_the_one_that_is_meant() -> None:
    with pytest.raises(TypeError, match=r"no option 'concurency': did you mean concurrency\?"):
        popmq.Worker().on("orders", group="billing", concurency=3)(print_it)  # type: ignore[call-arg]  # a typing error
    with pytest.raises(TypeError, match=r"`on` of a worker has no option 'retries'.*settings of the group"):
        popmq.Worker().on("orders", group="billing", retries=3)(print_it)  # type: ignore[call-arg]


def print_it(delivery: popmq.Delivery) -> None: ...


@dataclasses.dataclass
class Lost:
    of: Nothing  # type: ignore[name-defined]  # noqa: F821


def test_a_record_that_names_an_unknown_type_is_refused_when_it_is_registered() -> None:
    def handler(payload: Lost) -> None: ...

    with pytest.raises(TypeError, match="an annotation of Lost names what its module does not have"):
        popmq.Worker().on("orders", group="billing")(handler)


def test_a_generator_function_is_refused_when_it_is_registered() -> None:
    def lazy(delivery: popmq.Delivery) -> Any:
        yield 1

    async def lazy_in_the_loop(delivery: popmq.Delivery) -> Any:
        yield 1

    for function in (lazy, lazy_in_the_loop):
        with pytest.raises(TypeError, match="is a generator function"):
            popmq.Worker().on("orders", group="billing")(function)


def test_a_second_handler_of_a_group_is_refused_and_one_for_another_group_gets_each_message_too() -> None:
    worker = popmq.Worker()

    @worker.on("orders", group="billing")
    def first(delivery: popmq.Delivery) -> None: ...

    with pytest.raises(ValueError, match=r"first handles topic 'orders' for group 'billing' already"):
        worker.on("orders", group="billing")(first)
    worker.on("orders", group="shipping")(first)
    worker.on("chats", group="billing", lite_topics=["alice"])(first)
    worker.on("chats", group="billing", lite_topics=["bob"])(first)
    assert len(worker.handlers) == 4


@pytest.mark.parametrize("delay", ["1d", -1, 12 * 3600 + 1])
def test_a_delay_that_no_release_may_have_is_refused_where_it_is_raised(delay: Any) -> None:
    with pytest.raises(ValueError, match="a message waits at most 12 hours"):
        popmq.RetryLater(delay)


def test_an_option_that_a_worker_does_not_have_is_refused_when_it_is_given() -> None:
    with pytest.raises(TypeError, match="'foo'"):
        popmq.Worker(foo=1)
    worker = popmq.Worker()
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"max_retries": 3}, TypeError, "'max_retries'"),
        ({"wait": "soon"}, popmq.errors.InvalidField, "'soon' is not a duration"),
        ({"on_error": "ignore"}, popmq.errors.InvalidField, "'ignore' is neither"),
        ({"concurrency": "8"}, TypeError, "concurrency is '8': give an int"),
        ({"group": None}, TypeError, "group is None"),
    ]
    for options, error, text in wrong:
        with pytest.raises(error, match=text):
            worker.on("orders", **({"group": "billing"} | options))(lambda delivery: None)
    with pytest.raises(TypeError, match="the topic is <function"):
        worker.on(lambda delivery: None, group="billing")(lambda delivery: None)  # type: ignore[arg-type]
    assert worker.handlers == []


@pytest.mark.parametrize("given", [5, popmq.Middleware])
def test_an_object_that_is_no_middleware_is_refused_when_it_is_given(given: Any) -> None:
    with pytest.raises(TypeError, match="is not a middleware: give an object"):
        popmq.Worker().use(given)
    with pytest.raises(TypeError, match="is not a middleware"):
        popmq.Worker(middleware=[given])


LOOPS = {
    "popmq._consuming.consumer_settings:ConsumerSettings": (popmq.ConsumeOptions, popmq.AsyncClient.consume),
    "popmq._consuming.pull_settings:PullSettings": (popmq.PullConsumeOptions, popmq.AsyncClient.pull_consume),
}


@pytest.mark.parametrize("settings", LOOPS)
def test_each_option_of_a_loop_is_read_and_its_documentation_names_it(settings: str) -> None:
    options, loop = LOOPS[settings]
    read = {each.name for each in dataclasses.fields(resolve_name(settings))} - {"topic", "group", "filter"}
    assert options.__annotations__.keys() == read | {"tag", "sql"}
    assert [name for name in options.__annotations__ if f"`{name}`" not in (loop.__doc__ or "")] == []


def test_the_documentation_lists_the_options_of_consume_with_their_defaults() -> None:
    page = (pathlib.Path(__file__).parents[3] / "docs/sdk.md").read_text()
    table = page[page.index("| Option | Default |") : page.index("Several threads or tasks may share")]
    rows = re.findall(r"^\| (`.*`) \| `(.*?)` \|", table, re.MULTILINE)
    listed = {name: default for names, default in rows for name in re.findall(r"\w+", names)}
    settings = dataclasses.fields(resolve_name("popmq._consuming.consumer_settings:ConsumerSettings"))
    known = {each.name: repr(each.default) for each in settings}
    assert listed == {name: known.get(name, "None") for name in popmq.ConsumeOptions.__annotations__}


@pytest.mark.parametrize("loop", ["consume", "pull_consume", "broadcast_consume"])
def test_a_loop_refuses_an_option_that_it_does_not_have_and_says_which_one_may_be_meant(loop: str) -> None:
    with popmq.Client("127.0.0.1:1") as client:
        group = () if loop == "broadcast_consume" else ("billing",)
        with pytest.raises(TypeError, match=f"{loop} has no option 'on_eror': did you mean on_error?"):
            getattr(client, loop)("orders", *group, on_eror="raise")
