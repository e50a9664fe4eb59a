"""What is at rest costs those who do not ask for it nothing: counted at two sizes ten times apart."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from popmq_server.clock import FakeClock
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.contract.commands.numbers import LeaseNumbers
from popmq_server.embedded.fsck.check import check
from popmq_server.embedded.loop.long_poll import Waiters
from popmq_server.embedded.rules.inspect import stats
from popmq_server.embedded.rules.operate import idle_subscriptions
from popmq_server.embedded.rules.retention import retention
from popmq_server.embedded.rules.topics import backlog, index, walks
from popmq_server.embedded.state import checkpoints, space
from popmq_server.embedded.state.lite_watch import wake_key
from tests.engine.conftest import MakeRig
from tests.engine.rig import KEEP, MINUTE, Rig, bodies, numbered, refusals, sending
from tests.engine.traffic.resting import leases
from tests.engine.work import calls, grows
from tests.known import known

SMALL, LARGE = 200, 2000
#: What one more level of a tree and the like may add.
GROWTH_MAX = 1.1


@pytest.fixture
def pair(make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch) -> tuple[Rig, Rig]:
    """A topic with a few messages, beside another one with few and with many leases; walks look at 100 in a piece."""
    monkeypatch.setattr(checkpoints, "LOOKS_MAX", 100)
    monkeypatch.setattr(stats, "LEASES_PIECE", 100)
    rigs = leases(make_rig("small"), SMALL), leases(make_rig("large"), LARGE)
    for rig in rigs:
        rig.pair()
        rig.send(*numbered("m", 20))
        rig.pop(1)
        rig.settle()
        rig.restart()  # what was put last is in memory: of few leases that would be all of them
    return rigs


def piece(rig: Rig) -> int:
    """What one piece of periodic work costs."""
    return calls(lambda: rig.core.run([]))


def growth(rigs: tuple[Rig, Rig], action: Callable[[Rig], Any]) -> float:
    small, large = rigs
    return grows(lambda: action(small), lambda: action(large))


ASKED: dict[str, Any] = {
    "a scrape of all groups": queries.Groups("", ""),
    "the numbers of one group": queries.Groups("t", "g"),
    "the clients of one group": queries.HeldBy((("g", "c"),)),
    "a piece of a list of leases": queries.Leases("", "", 10, ""),
    "a piece of a list of one group's leases": queries.Leases("t", "g", 10, ""),
    "a pop": ask.Pop("t", "g", (), 1, client_id="c", attempt_id="1"),
    "a pop of many": ask.Pop("t", "g", (), 10),
}


@pytest.mark.slow
@pytest.mark.parametrize("what", ASKED)
def test_the_work_of_a_command_does_not_grow_with_leases_of_others(pair: tuple[Rig, Rig], what: str) -> None:
    assert growth(pair, lambda rig: rig.run(ASKED[what])) < GROWTH_MAX


@pytest.mark.slow
def test_an_ack_costs_the_same_beside_leases_of_others(pair: tuple[Rig, Rig]) -> None:
    rows = {id(rig): rig.pop(1) for rig in pair}
    assert growth(pair, lambda rig: rig.ack(rows[id(rig)])) < GROWTH_MAX


@pytest.mark.slow
@pytest.mark.parametrize(
    "command", [ask.PurgeTopic("t"), ask.DeleteTopic("t"), ask.DeleteGroup("g")], ids=["purge", "topic", "group"]
)
def test_each_piece_of_a_removal_is_bounded_whatever_others_lease(pair: tuple[Rig, Rig], command: Any) -> None:
    pieces: list[int] = []
    for rig in pair:
        rig.do(command)
        while list(rig.core.state.purges):
            pieces.append(piece(rig))
    assert max(pieces) < 3 * pieces[0]


def test_the_delete_of_a_group_costs_the_same_beside_other_groups(make_rig: MakeRig) -> None:
    rigs = make_rig("few"), make_rig("many")
    for rig, groups in zip(rigs, (20, 200), strict=True):
        rig.topic()
        for name in numbered("g", groups):
            rig.group(name)
            rig.do(ask.Available("t", name))
    assert growth(rigs, lambda rig: rig.do(ask.DeleteGroup("g7"))) < GROWTH_MAX


@pytest.mark.slow
def test_a_reset_is_swept_in_bounded_pieces_whatever_others_lease(pair: tuple[Rig, Rig]) -> None:
    pieces: list[int] = []
    for rig in pair:
        rig.pop(10)
        rig.do(ask.ResetOffsets("t", "g", ("EARLIEST", 0)))
        while list(rig.core.state.sweeps):
            pieces.append(piece(rig))
        assert len(rig.pop(100)) == 20
    assert max(pieces) < 3 * min(pieces)


@pytest.mark.slow
def test_a_minute_costs_the_same_beside_leases_of_others(pair: tuple[Rig, Rig]) -> None:
    def minute(rig: Rig) -> None:
        rig.skip(MINUTE)
        rig.core.run([])

    for rig in pair:
        rig.ack(rig.pop())
    assert growth(pair, minute) < GROWTH_MAX


@pytest.mark.parametrize("minute", [1, 20])
def test_the_longest_piece_of_a_minute_costs_the_same_beside_many_topics(
    make_rig: MakeRig, monkeypatch: pytest.MonkeyPatch, minute: int
) -> None:
    """Retention, sizes, unique ids, index blocks, idle subscriptions: each goes over the topics in pieces."""
    monkeypatch.setattr(walks, "LOOKS_MAX", 20)
    monkeypatch.setattr(retention, "LOOKS_MAX", 60)
    monkeypatch.setattr(idle_subscriptions, "LOOKS_MAX", 20)
    longest = []
    for name, count in (("small", 60), ("large", 600)):
        rig = make_rig(name)
        rig.run(*(ask.CreateTopic(f"t{number:03}", 1, False, KEEP) for number in range(count)))
        rig.core.state.fresh_blocks = index.FRESH_MIN
        rig.skip(minute * MINUTE)
        longest.append(max(piece(rig) for _ in iter(lambda rig=rig: rig.due, False)))  # type: ignore[misc]
    assert longest[1] < 1.5 * longest[0]


def test_refusals_of_a_full_store_look_for_the_greatest_backlog_once_a_batch(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[object] = []

    def walk(state: object) -> str:
        walks.append(state)
        return "somebody"

    monkeypatch.setattr(backlog, "greatest_backlog", walk)
    monkeypatch.setattr(space, "STORE_LEAVES", 1.0)
    space._floors.cache_clear()
    rig.topic()
    refused = rig.run(*(sending(f"m{number}") for number in range(10)))
    space._floors.cache_clear()
    assert refusals(refused) == ["STORAGE_FULL"] * 10
    assert len(walks) == 1


def test_a_check_looks_at_a_lease_once_however_many_groups_there_are(make_rig: MakeRig) -> None:
    def checked(name: str, groups: int, count: int) -> int:
        rig = make_rig(name)
        rig.topic()
        for number in range(groups):
            rig.group(f"g{number}")
            rig.pop(group=f"g{number}")
        leases(rig, count)
        with rig.reading() as kv:
            return calls(lambda: list(check(kv)))

    few = checked("few", 2, 100) - checked("few, idle", 2, 0)
    many = checked("many", 20, 100) - checked("many, idle", 20, 0)
    assert many < GROWTH_MAX * few


def test_a_heartbeat_costs_the_same_beside_many_groups(make_rig: MakeRig) -> None:
    rigs = make_rig("small"), make_rig("large")
    for rig, count in zip(rigs, (20, 200), strict=True):
        for number in range(count):
            rig.group(f"g{number}")
    assert growth(rigs, lambda rig: rig.do(queries.GroupSettings("g1"))) < GROWTH_MAX


def test_the_number_of_parked_pops_of_a_group_costs_the_same_beside_many_others() -> None:
    waits: list[asyncio.Future[bool]] = []

    async def parked(count: int) -> Waiters:
        lot = Waiters(FakeClock(), wake_all=False)
        for number in range(count):
            key = (f"g{number}", wake_key("t", "c"))
            waits.append(asyncio.ensure_future(lot.park(key, lot.generation(key), 1 << 60)))
        await asyncio.sleep(0)
        assert (lot.parked("g1", "t"), lot.parked("g", "t")) == (1, 0)
        return lot

    async def main() -> float:
        small, large = await parked(20), await parked(200)
        found = grows(lambda: small.parked("g1", "t"), lambda: large.parked("g1", "t"))
        small.close()
        large.close()
        await asyncio.gather(*waits)
        return found

    assert asyncio.run(main()) == 1


# ── The oldest message under a lease ─────────────────────────────────────────────────────────────────────────────────


def test_the_oldest_leased_message_is_reported_to_the_millisecond_whatever_order_acks_come_in(rig: Rig) -> None:
    rig.pair()
    times = []
    for name in "abcd":
        times.append(rig.now)
        rig.send(name * 5000)
        rig.skip(1000)
    rows = [row for _ in range(4) for row in rig.pop(1)]
    rig.send("later")
    rig.pop(1)
    for acked, oldest in ((1, 0), (0, 2), (3, 2)):
        rig.ack([rows[acked]])
        assert rig.numbers().oldest_ms == times[oldest]
        rig.restart()
        assert rig.numbers().oldest_ms == times[oldest]
    rig.ack([rows[2]])
    assert known(rig.numbers().oldest_ms) > times[3]


def test_a_list_of_leases_is_complete_over_its_pieces_and_soonest_first(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "LEASES_PIECE", 7)
    leases(rig, 30)
    rig.pair()
    rig.send(*numbered("m", 20))
    wanted = []
    for _ in range(20):
        wanted.append(rig.pop(1)[0].lease.ck_id)
        rig.skip(1)
    found, met, after = list[LeaseNumbers](), 0, ""
    while True:
        rows, count, after = rig.do(queries.Leases("t", "g", 15 - len(found), after))
        found, met = found + rows, met + count
        if not after:
            break
    assert ([int(row.lease_id) for row in found], met) == (wanted[:15], 20)
    assert bodies(rig.pop()) == []
