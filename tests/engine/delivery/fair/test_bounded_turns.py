"""No key starves, as a property: of n keys that may go each waits for at most n - 1 others, whatever each of them has.

Random numbers of keys and labels, backlogs, sizes of batches, limits, and what becomes of the messages. Counted in
messages that other keys take between two of a key that has some and may go.
"""

import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from popmq_server.embedded.operations import ReadAhead
from popmq_server.values.records import FairKeys
from tests.engine.rig import Rig
from tests.engine.traffic.traffic_fair import of, opened, send, tenants

POPS = 40


class Scene(NamedTuple):
    """The backlog of each key, in the order in which they were sent; and what consumers do."""

    backlogs: tuple[int, ...]
    batch: int
    in_flight_max: int
    then: str  # ack, release
    labels: int  # keys of each label; 0 = no labels
    restarts: bool


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    keys = draw(st.integers(1, 20))
    backlogs = draw(st.lists(st.sampled_from([1, 2, 5, 40, 300]), min_size=keys, max_size=keys))
    then = draw(st.sampled_from(["ack", "ack", "release"]))
    labels = draw(st.sampled_from([0, 0, 3]))
    return Scene(
        tuple(backlogs),
        draw(st.integers(1, 16)),
        draw(st.sampled_from([0, 0, 1, 3])),
        then,
        labels,
        draw(st.booleans()),
    )


def name_of(scene: Scene, key: int) -> str:
    return f"label{key // scene.labels}/key{key}" if scene.labels else f"key{key}"


@settings(max_examples=60, deadline=None)
@example(Scene((300, 1), 1, 0, "ack", 0, False))
@example(Scene((300, 300, 1), 16, 1, "release", 0, True))
@example(Scene((300,) * 9, 2, 3, "ack", 3, False))
@given(scenes())
def test_a_key_waits_for_each_other_once(scene: Scene) -> None:
    with tempfile.TemporaryDirectory(prefix="popmq-fair-") as folder:
        rig = Rig(Path(folder) / "data")
        try:
            follow(rig, scene)
        finally:
            rig.core.close()


def follow(rig: Rig, scene: Scene) -> None:
    opened(rig, FairKeys("property", "tenant", "/" if scene.labels else "", scene.in_flight_max), queues=2)
    for key, backlog in enumerate(scene.backlogs):
        send(rig, of(name_of(scene, key), backlog))
    left = Counter({name_of(scene, key): backlog for key, backlog in enumerate(scene.backlogs)})
    since = Counter[str]()  # messages of others, for each key since its last one
    if rig.popped(max_messages=1, max_bytes=1).rows:  # leased for good: it stands for a consumer that is slow
        left[name_of(scene, 0)] -= 1
    while rig.do(ReadAhead("t", "g")):
        pass
    for number in range(POPS):
        rows = rig.pop(scene.batch)
        for name in tenants(rows):
            left[name] -= 1
            assert since[name] <= bound(scene, left), f"{name} waited for {since[name]} messages of others: {scene}"
            since.update(other for other in left if other != name and left[other])
            since[name] = 0
        if scene.in_flight_max:
            since.clear()  # what waits for a limit may wait
        if scene.then == "ack" or number % 3:
            rig.ack(rows)
        else:
            rig.release(rows)
            left.update(tenants(rows))
        if scene.restarts and number == POPS // 2:
            rig.restart()
            since.clear()
    assert rig.findings() == []


def bound(scene: Scene, left: Counter[str]) -> int:
    """The messages of others that one of a key may wait for: each other key once; with labels each other label once for
    each key of its own label."""
    if not scene.labels:
        return len(scene.backlogs)
    return scene.labels * (len(scene.backlogs) // scene.labels + 2)


def test_the_bound_is_reached() -> None:
    """With a bound of one less the property would fail: it compares what it says."""
    scene = Scene((300,) * 5, 4, 0, "ack", 0, False)
    with tempfile.TemporaryDirectory(prefix="popmq-fair-") as folder:
        rig = Rig(Path(folder) / "data")
        opened(rig, queues=2)
        for key, backlog in enumerate(scene.backlogs):
            send(rig, of(name_of(scene, key), backlog))
        while rig.do(ReadAhead("t", "g")):
            pass
        found = tenants(rig.pop(20))
        rig.core.close()
    assert found == [f"key{key}" for key in range(5)] * 4
