"""The Hypothesis strategies of the state machine's steps. Their sets are small, so that steps affect each other."""

from hypothesis import strategies as st

from tests.engine.rig import DAY, HOUR, MINUTE, SECOND
from tests.engine.search.model import model_facts as facts
from tests.engine.search.model.model_topics import FILTERS
from tests.engine.search.steps import (
    REASONS,
    AckStep,
    ChangeStep,
    CountStep,
    Draft,
    EndStep,
    ListenStep,
    Pick,
    PopStep,
    RecallStep,
    RescheduleStep,
    SealStep,
    SendStep,
    SettleStep,
)

TOPICS = ("t", "t_u")
GROUPS = ("a", "a_b", "b")
DELAYS_MS = (10 * SECOND, 30 * SECOND, 2 * MINUTE)
NO_GROUP = facts.Group(1, (), 0, ("", 0), False)

#: Mostly one group in one topic: steps that do not affect each other find no defects.
topics, groups = st.sampled_from(["t", "t", "t", "t_u"]), st.sampled_from(["a", "a", "a", "a_b", "b"])
owners = st.sampled_from(["o", "o", "p"])
queue_sets = st.sampled_from([(), (), (), (0,), (1,), (0, 1)])
sizes = st.sampled_from([1, 1, 2, 3, 5, 32])
byte_bounds = st.sampled_from([3 << 20, 3 << 20, 1, 150, 400])
leases_ms = st.sampled_from([0, SECOND, 30 * SECOND, HOUR])
delays = st.sampled_from([None, 0, 0, SECOND, MINUTE])
starts = st.sampled_from([("EARLIEST", 0), ("EARLIEST", 0), ("LATEST", 0), ("TIMESTAMP", 1_700_000_100_000)])
#: None, the most frequent: the filter of the group.
filters = st.sampled_from([None] * 30 + list(FILTERS))
waits = st.sampled_from(
    [("", 0)] * 3 + [("delay", 1), ("delay", SECOND), ("delay", HOUR), ("due", -SECOND), ("due", 1), ("due", MINUTE)]
)

HOWS = ["good"] * 20 + ["foreign", "nonce", "member", "unknown", "bad"]
picks = st.builds(Pick, st.one_of(st.integers(0, 3), st.integers(0, 40)), st.sampled_from(HOWS))
reasons = st.integers(0, len(REASONS) - 1)


def drafts(timed: bool) -> st.SearchStrategy[Draft]:
    """Messages; with `timed` many of them are delayed or half messages."""
    return st.builds(
        Draft,
        st.sampled_from([True] * 6 + [False]),
        st.sampled_from("aaabc"),
        st.sampled_from(["", "red", "red", "blue"]),
        st.sampled_from([None, 1, 2]),
        st.integers(0, 4),
        waits if timed else st.just(("", 0)),
        st.sampled_from([False, False, True]) if timed else st.just(False),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.sampled_from([False] * 15 + [True]),
        st.sampled_from([0, 0, 0, SECOND, MINUTE]),
    )


def sending(timed: bool) -> st.SearchStrategy[SendStep]:
    return st.builds(
        SendStep,
        topics,
        st.lists(drafts(timed), max_size=5),
        st.booleans(),
        st.sampled_from(["", "p", "q"]),
        st.integers(1, 3),
    )


pops = st.builds(
    PopStep,
    topics,
    groups,
    queue_sets,
    sizes,
    byte_bounds,
    leases_ms,
    st.sampled_from(["", "c", "d"]),
    st.sampled_from([0, 0, 1, 2]),
    filters,
)
seals = st.builds(
    SealStep,
    topics,
    groups,
    queue_sets,
    sizes,
    byte_bounds,
    leases_ms,
    owners,
    st.sampled_from([0, 0, 0, 0, 1]),
    st.sampled_from([1, 1, 1, 2, 0]),
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from([0, 0, 2, 4]),
    st.booleans(),
    filters,
)
acks = st.builds(AckStep, groups, st.lists(picks, min_size=1, max_size=6))
changes = st.builds(
    ChangeStep,
    groups,
    st.lists(
        st.tuples(
            picks, st.sampled_from(["extend", "release", "release", "snooze", "reject"]), delays, st.booleans(), reasons
        ),
        min_size=1,
        max_size=4,
    ),
)
endings = st.tuples(picks, st.sampled_from(["release", "snooze", "reject"]), delays, st.booleans(), reasons)
producers, request_numbers = st.sampled_from(["", "s"]), st.integers(1, 3)
settles = st.builds(
    SettleStep,
    groups,
    st.lists(picks, max_size=3),
    st.lists(endings, max_size=2),
    st.lists(sending(False), max_size=2),
    producers,
    request_numbers,
)
#: Common requests.
steps = st.one_of(sending(False), sending(False), pops, pops, pops, seals, acks, acks, changes, settles)

few = st.integers(0, 5)
recalls = st.builds(RecallStep, few, st.sampled_from(["", "", "", *TOPICS]))
reschedules = st.builds(RescheduleStep, recalls, waits)
ends = st.builds(EndStep, st.lists(st.tuples(few, st.sampled_from([True, True, False])), min_size=1, max_size=3))
counts = st.builds(CountStep, st.lists(few, max_size=3))
listens = st.builds(ListenStep, st.sampled_from([frozenset(TOPICS), frozenset(TOPICS), frozenset({"t"}), frozenset()]))
#: The same, with delayed and half messages.
timed_steps = st.one_of(sending(True), sending(True), recalls, reschedules, ends, ends, counts, listens, pops, acks)

pauses_ms = st.sampled_from(
    [1, 999, SECOND, 10 * SECOND, 31 * SECOND, 61 * SECOND, HOUR, 13 * HOUR, 7 * DAY],
)
wall_steps_ms = st.sampled_from([-HOUR, -MINUTE, -1, 1, MINUTE, HOUR])
