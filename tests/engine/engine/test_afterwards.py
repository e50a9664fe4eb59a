"""What the event loop forgets once a group is deleted."""

from pathlib import Path

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from tests.engine.event_loop import whole_engine
from tests.engine.traffic.traffic import group


async def test_a_group_created_again_has_no_clients_locks_or_metrics_of_the_old_one(tmp_path: Path) -> None:
    async with whole_engine(tmp_path / "data", FakeClock(), queues=2) as engine:
        await engine.execute(ask.Heartbeat("g", "old", frozenset({"t"})))
        await engine.execute(ask.LockQueues("t", "g", "old", (0, 1)))
        for where in (("g", "t"), ("another", "%DLQ%g")):
            engine.metrics.messages.labels("Pop", *where).inc(3)
        await engine.execute(ask.DeleteGroup("g"))
        await engine.execute(group("g", 3))
        assert (await engine.ask(ask.Clients("g"))).consumers == []
        assert await engine.execute(ask.LockQueues("t", "g", "new", (0, 1))) == [0, 1]
        assert list(engine.metrics.messages.names()) == []
