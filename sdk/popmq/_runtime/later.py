"""Modules that are imported, and parts of a client that are made, when they are first used.

A program that asks a broker for one thing needs few of the client's modules: together they take most of the time of a
short command. Those that describe requests and answers of one kind are imported by the first call of that kind:

    if TYPE_CHECKING:
        from popmq._calls import owner_calls
    else:
        owner_calls = Later("popmq._calls.owner_calls")
"""

import importlib
import sys
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from popmq._runtime import forks
from popmq.errors import ClientClosed

T = TypeVar("T")


class Later:
    """Imports a module at its first use. Attributes that were used are kept here, so that a second use costs no more
    than an attribute. Raises ClientClosed when the interpreter ends.
    """

    def __init__(self, module: str) -> None:
        self.__module = module

    def __getattr__(self, name: str) -> Any:
        try:
            module = importlib.import_module(self.__module)
        except ImportError:
            if sys.is_finalizing():  # nothing can be imported any more
                raise ClientClosed("the program has ended, and with it this client", action=forks.EARLIER) from None
            raise
        value = getattr(module, name)
        setattr(self, name, value)
        return value


class made_once(Generic[T]):
    """An attribute that is made when it is first read, once for all threads; from then on it is in `__dict__`."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._making = threading.Lock()

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, client: Any, _owner: type) -> T:
        made: dict[str, Any] = client.__dict__  # from now on found there, without this call
        with self._making:
            if self._name not in made:
                made[self._name] = self._make(client)
        value: T = made[self._name]
        return value
