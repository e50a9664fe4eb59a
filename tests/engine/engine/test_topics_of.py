"""The topics of transaction ids, which are asked for the rights of each EndTransaction."""

from pathlib import Path
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import TopicsOf
from popmq_server.embedded.loop.broker import EmbeddedEngine
from popmq_server.embedded.writer.core import Core
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options
from popmq_server.values.handles import TransactionId, transaction_text
from popmq_server.values.limits import KEEP_MS_MAX
from tests.engine.work import calls

UNKNOWN = 1_000_000


def transaction(topic_id: int) -> str:
    return transaction_text(TransactionId(topic_id, 1, 2))


async def broker_with(folder: Path, topics: int) -> EmbeddedEngine:
    broker = EmbeddedEngine(Options(folder, max_size=1 << 28, sync="none"), FakeClock(), Metrics())
    for number in range(topics):
        await broker.execute(ask.CreateTopic(f"t{number}", 1, False, KEEP_MS_MAX))
    return broker


async def test_a_forged_transaction_id_costs_the_same_beside_ten_times_the_topics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    handle = Core._handle

    def counted(*about: Any) -> Any:
        """Without the commit around it, which reads the store's list of free pages."""
        results: list[Any] = []
        counts.append(calls(lambda: results.append(handle(*about))))
        return results[0]

    for topics in (10, 100):
        broker = await broker_with(tmp_path / str(topics), topics)
        with monkeypatch.context() as patched:
            patched.setattr(Core, "_handle", counted)
            assert await broker.ask(TopicsOf((transaction(UNKNOWN),))) == set()
        await broker.close()
    assert counts == [counts[0]] * 2


async def test_transaction_ids_give_the_names_of_their_topics(tmp_path: Path) -> None:
    broker = await broker_with(tmp_path / "data", 3)
    texts = [transaction(1), transaction(3), transaction(UNKNOWN), "no transaction"]
    assert await broker.ask(TopicsOf(tuple(texts))) == {"t0", "t2"}
    assert await broker.ask(TopicsOf((transaction(2),))) == {"t1"}
    await broker.execute(ask.DeleteTopic("t0"))
    assert await broker.ask(TopicsOf(tuple(texts[:2]))) == {"t0", "t2"}, "known names are kept: ids are not reused"
    await broker.close()
