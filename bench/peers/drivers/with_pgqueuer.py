"""PgQueuer: jobs in tables of PostgreSQL, whose default, synchronous_commit on, has a job on disk when it is enqueued.

Its own worker (`PgQueuer.run`) starts a task for each job, and logs the ends of jobs up to 0.1 s later. The steps here
are what that worker calls in the database: `dequeue`, and `log_jobs`, which removes the jobs.
"""

import importlib
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from bench.peers.drivers.legs import LEASE_S, Options


class PgQueuer:
    """Tasks that share a pool of connections, of asyncpg's default size."""

    def __init__(self, options: Options) -> None:
        self._options, self._topic, self._worker = options, options.topic, uuid.uuid4()
        persistence = importlib.import_module("pgqueuer.adapters.persistence.queries")
        self._limits = {options.topic: persistence.EntrypointExecutionParameter(concurrency_limit=0)}

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        driver, queries = (importlib.import_module(f"pgqueuer.{name}") for name in ("db", "queries"))
        async with importlib.import_module("asyncpg").create_pool(self._options.endpoint) as pool:
            self._queries = queries.Queries(driver.AsyncpgPoolDriver(pool))
            yield

    async def prepare(self, topics: Sequence[str]) -> None:
        """An entrypoint needs no making, only the tables."""
        if not await self._queries.schema_is_installed():
            await self._queries.install()

    async def send(self) -> int:
        bodies = [text.encode() for text in self._options.texts()]
        if len(bodies) == 1:
            await self._queries.enqueue(self._topic, bodies[0])
        else:
            await self._queries.enqueue([self._topic] * len(bodies), bodies, [0] * len(bodies))
        return len(bodies)

    async def receive(self) -> int:
        lease = timedelta(seconds=LEASE_S)
        jobs = await self._queries.dequeue(self._options.batch, self._limits, self._worker, None, lease)
        if jobs:
            await self._queries.log_jobs([(job, "successful", None) for job in jobs])
        return len(jobs)
