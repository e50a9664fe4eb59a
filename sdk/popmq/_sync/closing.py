# Written by sdk/twin.py from popmq/_async/closing.py: change that one.
"""The context manager of clients and consumers, which closes them."""

from types import TracebackType
from typing import Self


class Closing:
    """A context manager over `close`."""

    def close(self) -> None:
        """Closes its connection, or its loop."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
