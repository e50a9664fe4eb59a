"""Errors beside those of a handler: of the middleware around it, and of what a decorator makes of it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

import popmq
from popmq.testing import Broker
from tests.sdk.workers.workers import sent_to

FOR_OTHERS = [SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()]


class Fails(popmq.Middleware):
    """Raises an error in one of its methods, for the message "bad"."""

    def __init__(self, method: str, error: BaseException) -> None:
        self._method, self._error = method, error

    def before(self, delivery: popmq.Delivery) -> None:
        self._in("before", delivery)

    async def after(self, delivery: popmq.Delivery, result: Any) -> None:
        self._in("after", delivery)

    def _in(self, method: str, delivery: popmq.Delivery) -> None:
        if method == self._method and delivery.body == b"bad":
            raise self._error


def outcomes(broker: Broker, function: Any, *middleware: popmq.Middleware) -> dict[bytes, str]:
    """How a worker of one handler, one message at a time, ended "bad" and "good"."""
    worker = popmq.Worker(middleware=middleware)
    worker.on("orders", group="billing", concurrency=1)(function)
    sent_to(broker, worker, "bad", "good")
    return {each.delivery.body: each.outcome for each in broker.work(worker)}


@pytest.mark.parametrize("error", FOR_OTHERS, ids=repr)
@pytest.mark.parametrize(("method", "outcome"), [("before", "released"), ("after", "acked")])
def test_a_middleware_error_that_is_meant_for_others_does_not_end_the_worker(
    popmq_broker: Broker, method: str, outcome: str, error: BaseException
) -> None:
    found = outcomes(popmq_broker, lambda delivery: None, Fails(method, error))
    assert found == {b"bad": outcome, b"good": "acked"}


def test_a_coroutine_that_a_coroutine_function_returns_is_awaited(popmq_broker: Broker) -> None:
    """As an `async` decorator without an `await` does."""
    ran = list[bytes]()

    async def work(delivery: popmq.Delivery) -> None:
        ran.append(delivery.body)

    def decorated(function: Callable[..., Coroutine[Any, Any, None]]) -> Any:
        async def passes_on(delivery: popmq.Delivery) -> Any:
            return function(delivery)

        return passes_on

    assert outcomes(popmq_broker, decorated(work)) == {b"bad": "acked", b"good": "acked"}
    assert ran == [b"bad", b"good"]


def test_an_error_whose_text_fails_is_that_of_its_handler_and_ends_no_worker(popmq_broker: Broker) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise TypeError("not enough arguments for format string")

    def work(delivery: popmq.Delivery) -> None:
        if delivery.body == b"bad":
            raise Odd

    assert outcomes(popmq_broker, work) == {b"bad": "released", b"good": "acked"}
    client = popmq_broker.client()
    (bad,) = client.messages.browse("orders", order="oldest", search="bad").deliveries
    (life,) = client.messages.why(bad.message_id)
    assert "Odd: <exception str() failed>" in repr(life)
