"""What a run asks around every message; popmq.Middleware is this with methods that do nothing."""

from typing import Any, Protocol

from popmq.message import Delivery


class Hooks(Protocol):
    """Each method may be a coroutine function."""

    def before(self, delivery: Delivery) -> Any: ...

    def after(self, delivery: Delivery, result: Any) -> Any: ...

    def failed(self, delivery: Delivery, error: Exception) -> Any: ...
