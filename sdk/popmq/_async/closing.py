"""The context manager of clients and consumers, which closes them."""

from types import TracebackType
from typing import Self


class AsyncClosing:
    """A context manager over `close`."""

    async def close(self) -> None:
        """Closes its connection, or its loop."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
