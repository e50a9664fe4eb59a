"""Clients that are made when they are first used: frameworks make their broker on import, and fork afterwards."""

import asyncio
import inspect
import os
from typing import Any

import popmq


class ClientOfProcess:
    """Makes the client when a process first asks for it, and another one in a forked child.

    Nothing connects before, so that a program may be imported while no broker runs. Any thread may ask.
    Raises TypeError for an option that a client does not have.
    """

    def __init__(self, endpoint: str | None = None, **options: Any) -> None:
        inspect.signature(popmq.Client).bind(endpoint, **options)
        self._endpoint = endpoint
        self._options = options
        self._clients: dict[int, popmq.Client] = {}

    def __call__(self) -> popmq.Client:
        process = os.getpid()
        client = self._clients.get(process)
        if client is None:
            # No lock: a child that was forked while another thread held it would wait forever.
            made = popmq.Client(self._endpoint, **self._options)
            client = self._clients.setdefault(process, made)
            if client is not made:
                made.close()
        return client

    def close(self) -> None:
        """Sends outstanding outcomes to the broker, and closes the client of this process."""
        client = self._clients.pop(os.getpid(), None)
        if client is not None:
            client.close()


class ClientOfLoop:
    """Makes an AsyncClient when an event loop first asks for it, and another one in another loop or a forked child.

    Raises TypeError for an option that a client does not have.
    """

    def __init__(self, endpoint: str | None = None, **options: Any) -> None:
        inspect.signature(popmq.AsyncClient).bind(endpoint, **options)
        self._endpoint = endpoint
        self._options = options
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._client: popmq.AsyncClient | None = None

    def __call__(self) -> popmq.AsyncClient:
        home = os.getpid(), asyncio.get_running_loop()
        if self._client is None or self._home != home:
            self._client, self._home = popmq.AsyncClient(self._endpoint, **self._options), home
        return self._client

    async def close(self) -> None:
        """Sends outstanding outcomes to the broker, and closes the client of the running loop."""
        client, self._client = self._client, None
        if client is not None and self._home == (os.getpid(), asyncio.get_running_loop()):
            await client.close()
