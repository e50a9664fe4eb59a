"""What a run asks around every message; popmq.Middleware is this with methods that do nothing."""

from typing import Any, Protocol, TypeVar

from popmq.message import Delivery

T = TypeVar("T")

METHODS = ("started", "before", "after", "failed", "stopped")


class Hooks(Protocol):
    """Each method may be a coroutine function."""

    def before(self, delivery: Delivery) -> Any: ...

    def after(self, delivery: Delivery, result: Any) -> Any: ...

    def failed(self, delivery: Delivery, error: Exception) -> Any: ...


def checked_middleware(given: T) -> T:
    """`given`. Raises TypeError for what lacks a method, and for a class instead of an object of it."""
    if isinstance(given, type) or not all(callable(getattr(given, name, None)) for name in METHODS):
        raise TypeError(f"{given!r:.80} is not a middleware: give an object of a subclass of popmq.Middleware")
    return given
