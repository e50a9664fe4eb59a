"""What is fuzzed: a function that takes any bytes and raises if the product broke a promise."""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Running:
    """A target that is ready. `seeds`: inputs to begin with; `mutate`: changes one, by a seed."""

    run: Callable[[bytes], None]
    seeds: list[bytes]
    mutate: Callable[[bytes, int], bytes] | None = None


#: Prepares a target, and removes what it made.
Target = Callable[[], AbstractContextManager[Running]]


class Errors(logging.Handler):
    """What the product logs as a bug of its own."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def check(self) -> None:
        """Fails if something was logged."""
        if self.records:
            record = self.records.pop()
            shown = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            raise AssertionError(f"logged as a bug: {record.getMessage()}\n{shown}")


@contextmanager
def errors(*names: str) -> Iterator[Errors]:
    """Listens to these loggers."""
    found = Errors()
    for name in names:
        logging.getLogger(name).addHandler(found)
    try:
        yield found
    finally:
        for name in names:
            logging.getLogger(name).removeHandler(found)
