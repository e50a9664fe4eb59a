"""What was registered with `worker.on`: a function, its topic and group, and how a delivery becomes its arguments."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from popmq._consuming.consumer_settings import consumer_settings
from popmq._given.checking import known_names
from popmq._worker.converting import converter, named_type
from popmq.config import ConsumeOptions, time_limit
from popmq.duration import Duration
from popmq.message import Delivery
from popmq.outcome import BadPayload

#: Makes the arguments of a function from a delivery.
Arguments = Callable[[Delivery], tuple[Any, ...]]
_GENERATORS = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
_GIVEN_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True)
class Handler:
    """One registered function."""

    name: str
    function: Callable[..., Any]
    topic: str
    group: str
    concurrency: int
    arguments: Arguments
    is_coroutine: bool
    options: ConsumeOptions
    timeout: float | None = None
    convert: Callable[[Delivery], Any] | None = None


def handler_of(
    function: Callable[..., Any],
    topic: str,
    group: str,
    concurrency: int,
    convert: Callable[[Delivery], Any] | None,
    options: ConsumeOptions,
    timeout: Duration | None = None,
) -> Handler:
    """Raises TypeError for a function that cannot be called with a delivery or a payload, and for wrong options."""
    if not isinstance(topic, str):
        raise TypeError(f'the topic is {topic!r:.80}: register a handler with @worker.on("topic", group="group")')
    if not isinstance(group, str):
        raise TypeError(f"group is {group!r:.80}: give its name as a str")
    if not isinstance(concurrency, Integral):
        raise TypeError(f"concurrency is {concurrency!r:.80}: give an int")
    if concurrency < 1:
        raise ValueError(f"concurrency is {concurrency}: it is how many messages are handled at a time, from 1")
    names = {"group", "concurrency", "convert", "timeout", *ConsumeOptions.__annotations__}
    known_names(options, names, "`on` of a worker", " (attempts and backoff are settings of the group)")
    consumer_settings(topic, group, options)
    name = getattr(function, "__qualname__", type(function).__qualname__)
    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004 - the method itself is wanted
    if any(check(each) for check in _GENERATORS for each in (function, called)):
        raise TypeError(f"{name} is a generator function: a call would run none of it; take the `yield` out of it")
    is_coroutine = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
    arguments, limit = arguments_of(function, name, convert), time_limit(timeout, "a handler", "no limit")
    return Handler(name, function, topic, group, concurrency, arguments, is_coroutine, options, limit, convert)


def arguments_of(function: Callable[..., Any], name: str, convert: Callable[[Delivery], Any] | None) -> Arguments:
    """A parameter without annotation, or annotated with Delivery, takes the delivery; one other takes the payload.

    Parameters with a default are left alone.
    """
    parts: list[Callable[[Delivery], Any]] = []
    payloads = 0
    for parameter in needed_parameters(function, name):
        kind = named_type(parameter.annotation)
        if kind is Delivery or (convert is None and kind is inspect.Parameter.empty):
            parts.append(_itself)
        else:
            payloads += 1
            parts.append(convert or _from_body(kind))
    if not parts or payloads > 1:
        raise TypeError(f"{name} has to take one payload, one popmq.Delivery, or both")
    return lambda delivery: tuple([part(delivery) for part in parts])


def needed_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    """The parameters that a call has to fill. Raises TypeError."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except NameError as error:
        raise TypeError(f"an annotation of {name} names what its module does not have: {error}") from error
    needed = [each for each in signature.parameters.values() if each.default is inspect.Parameter.empty]
    needed = [each for each in needed if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    if wrong := [each.name for each in needed if each.kind not in _GIVEN_BY_POSITION]:
        raise TypeError(f"{name} needs {wrong[0]!r} by keyword: give it a default")
    return needed


def _itself(delivery: Delivery) -> Delivery:
    return delivery


def _from_body(kind: Any) -> Callable[[Delivery], Any]:
    read = converter(kind)

    def payload(delivery: Delivery) -> Any:
        try:
            body = delivery.unpacked()
        except ValueError as error:
            raise BadPayload(str(error)) from error
        return read(body)

    return payload
