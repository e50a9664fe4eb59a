"""Bad requests, one by one: the documented error, readable by the stock helper, and nothing changed."""

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.clock import FakeClock
from popmq_server.embedded.fsck.check import check_folder
from popmq_server.embedded_broker import EmbeddedBroker
from tests.wire import world as worlds
from tests.wire.cases import HOUR_12, INT64, Case
from tests.wire.reading.pull_cases import pull_cases
from tests.wire.refusing.refusal_cases import (
    bad_lists,
    bad_looks,
    bad_names,
    bad_owners,
    bad_pops,
    bad_results,
    bad_settings,
    bad_settles,
    bad_times,
)
from tests.wire.stubs import CALL_S, GROUP, Stubs, check_error, codes, dump, refusal
from tests.wire.world import METHODS, OTHER_GROUP, World, good_requests, method, with_fields

CASES = [
    *bad_names(),
    *bad_pops(),
    *bad_owners(),
    *bad_settings(),
    *bad_lists(),
    *bad_settles(),
    *bad_results(),
    *bad_times(),
    *bad_looks(),
    *pull_cases(),
]


class State(NamedTuple):
    """Everything that refused calls must leave alone, in the store and in memory."""

    stored: dict[str, dict[bytes, bytes]]
    stats: list[Any]
    owners: list[pb.OwnerStats]


def state(world: World) -> State:
    stats = world.stubs.admin.GetStats(pb.GetStatsRequest(), timeout=CALL_S)
    owners = world.stubs.admin.ListOwners(pb.ListOwnersRequest(), timeout=CALL_S).owners
    return State(dump(world.folder), [*stats.topics, *stats.groups], list(owners))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One world for all cases: a refused request changes nothing, so no case can disturb the next."""
    folder, clock = tmp_path_factory.mktemp("world") / "data", FakeClock()
    with EmbeddedBroker(folder, clock=clock, sync="none") as broker, Stubs(broker.endpoint) as stubs:
        world = worlds.build(stubs, folder, clock)
        before = state(world)
        yield world
        assert state(world) == before
    assert check_folder(folder) == []


@contextmanager
def nothing_written(folder: Path) -> Iterator[None]:
    """Nothing is committed meanwhile: the store's two head pages, one of which every commit replaces, stay."""

    def heads() -> bytes:
        with (folder / "popmq.mdb").open("rb") as data:
            return data.read(2 * resource.getpagesize())

    before = heads()
    yield
    assert heads() == before


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_bad_request_is_refused_and_changes_nothing(world: World, case: Case) -> None:
    changes = {name: value(world) if callable(value) else value for name, value in case.changes.items()}
    request = with_fields(good_requests(world)[case.method], **changes)
    with nothing_written(world.folder):
        refused = refusal(method(world.stubs, case.method), request)
    assert (refused.code, refused.info.field) == (case.code, case.field)
    assert not refused.info.retryable


@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("Broker/Pop", "format", "FORMAT_COLUMNS"),
        ("Broker/AttachOwner", "start.from", "LATEST"),
        ("Admin/CreateTopic", "topic.type", "LITE"),
        ("Admin/UpdateTopic", "topic.permission", "READ_ONLY"),
        ("Admin/SetConsumeMode", "mode", "PULL"),
        ("Admin/CreateSchedule", "schedule.missed", "ONCE"),
    ],
)
def test_a_value_that_an_enum_lacks_is_refused_with_the_values_that_it_has(
    world: World, name: str, field: str, value: str
) -> None:
    request = with_fields(good_requests(world)[name], **{field.replace(".", "__"): 99})
    refused = refusal(method(world.stubs, name), request)
    assert (refused.code, refused.info.field) == ("INVALID_FIELD", field)
    assert value in refused.info.action.removeprefix("use one of ").split(", ")


@pytest.mark.parametrize("name", METHODS)
def test_the_requests_that_the_bad_ones_are_made_from_are_good(
    stubs: Stubs, folder: Any, clock: FakeClock, name: str
) -> None:
    world = worlds.build(stubs, folder, clock)
    answer = method(stubs, name)(good_requests(world)[name], timeout=CALL_S)
    assert codes(getattr(answer, "results", [])) in ([], [""])


def entry_cases(world: World) -> Iterator[tuple[str, pb.InvisibleTimeChange, str, str]]:
    """(what, change, code, field after `changes[1].`) of entries that are refused."""
    extend, release, reject = pb.Extend(invisible_ms=60_000), pb.Release(), pb.Reject()
    for what, (handle, code) in world.bad_handles.items():
        yield what, pb.InvisibleTimeChange(handle=handle, extend=extend), code, "handle"
        yield what, pb.InvisibleTimeChange(handle=handle, release=release), code, "handle"
        yield what, pb.InvisibleTimeChange(handle=handle, reject=reject), code, "handle"
    for value in (0, -1, 999, HOUR_12 + 1, *INT64):
        late = pb.Extend(invisible_ms=value)
        yield str(value), pb.InvisibleTimeChange(handle=world.live, extend=late), "INVALID_FIELD", "extend.invisible_ms"
    for value in (-1, HOUR_12 + 1, *INT64):
        back = pb.Release(delay_ms=value)
        yield str(value), pb.InvisibleTimeChange(handle=world.live, release=back), "INVALID_FIELD", "release.delay_ms"
    for reason in ("r" * 4097, "é" * 2049):
        back, dead = pb.Release(reason=reason), pb.Reject(reason=reason)
        yield "long", pb.InvisibleTimeChange(handle=world.live, release=back), "INVALID_FIELD", "release.reason"
        yield "long", pb.InvisibleTimeChange(handle=world.live, reject=dead), "INVALID_FIELD", "reject.reason"
    yield "nothing", pb.InvisibleTimeChange(handle=world.live), "INVALID_FIELD", ""


def test_bad_changes_are_refused_one_by_one_and_change_nothing(world: World) -> None:
    cases = list(entry_cases(world))
    request = pb.ChangeInvisibleTimeRequest(group=GROUP, changes=[case[1] for case in cases])
    with nothing_written(world.folder):
        answer = world.stubs.broker.ChangeInvisibleTime(request, timeout=CALL_S)
    for place, (result, (what, _, code, field)) in enumerate(zip(answer.results, cases, strict=True)):
        check_error(result.error)
        path = f"changes[{place}].{field}".rstrip(".")
        assert (what, pb.Code.Name(result.error.code), result.error.field) == (what, code, path)
        assert (result.visible_ms, result.dead_lettered) == (0, False)


def test_bad_handles_are_refused_one_by_one_and_change_nothing(world: World) -> None:
    request = pb.AckRequest(group=GROUP, handles=[handle for handle, _ in world.bad_handles.values()])
    with nothing_written(world.folder):
        results = world.stubs.broker.Ack(request, timeout=CALL_S).results
    assert codes(results) == [code for _, code in world.bad_handles.values()]
    for place, result in enumerate(results):
        check_error(result.error)
        assert result.error.field == f"handles[{place}]"


def test_a_handle_is_good_in_its_own_group_only(world: World) -> None:
    change: Callable[..., pb.InvisibleTimeResult] = world.stubs.change
    with nothing_written(world.folder):
        assert world.stubs.ack(world.live, group=OTHER_GROUP) == ["INVALID_HANDLE"]
        assert codes([change(world.live, group=OTHER_GROUP, reject=pb.Reject())]) == ["INVALID_HANDLE"]


@pytest.mark.slow
def test_a_change_would_be_noticed(stubs: Stubs, folder: Path) -> None:
    with pytest.raises(AssertionError), nothing_written(folder):
        stubs.create_topic("written")
