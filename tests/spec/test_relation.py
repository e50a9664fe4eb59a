"""relation.py is Life.tla: both have the same graph."""

import re
from pathlib import Path

import pytest

from tests.spec import checking
from tests.spec.relation import ABSENT, Row, steps

Edges = set[tuple[Row, str, Row]]

NODE = re.compile(
    r'^(-?\d+) \[label="row = \[nonce \|-> (\d+), left \|-> (\d+), at \|-> \{(.*?)\}, attempts \|-> (\d+)\]',
    re.MULTILINE,
)
EDGE = re.compile(r'^(-?\d+) -> (-?\d+) \[label="(\w+)"', re.MULTILINE)


def graph_of(dot: str) -> Edges:
    """The graph that TLC wrote."""
    rows = {
        name: Row(place.replace('\\"', ""), int(attempts), int(nonce), int(left))
        for name, nonce, left, place, attempts in NODE.findall(dot)
    }
    return {(rows[start], action, rows[end]) for start, end, action in EDGE.findall(dot)}


def graph(max_attempts: int, max_pops: int) -> Edges:
    """The graph of relation.py."""
    edges: Edges = set()
    new, known = [ABSENT], {ABSENT}
    while new:
        row = new.pop()
        for action, after in steps(row, max_attempts, max_pops):
            edges.add((row, action, after))
            if after not in known:
                known.add(after)
                new.append(after)
    return edges


@pytest.mark.spec
def test_the_python_relation_has_exactly_the_steps_of_the_specification(tmp_path: Path) -> None:
    found = checking.explore("LifeGraph", dump=tmp_path / "graph.dot")
    assert found.whole
    theirs = graph_of((tmp_path / "graph.dot").read_text())
    bounds = dict(re.findall(r"(Max\w+) = (\d+)", checking.configuration("LifeGraph")))
    ours = graph(int(bounds["MaxAttempts"]), int(bounds["MaxPops"]))
    assert ours ^ theirs == set()
    assert len({row for row, _, _ in ours} | {row for _, _, row in ours}) == found.distinct
    assert {action for _, action, _ in ours} >= {"Send", "Pop", "Ack", "Extend", "Reject", "Expire", "Wake", "Tick"}


def test_a_graph_is_read_as_tlc_writes_it() -> None:
    dot = (
        '1 [label="row = [nonce |-> 0, left |-> 0, at |-> {}, attempts |-> 0]",style = filled]\n'
        '1 -> -2 [label="Send",color="black",fontcolor="black"];\n'
        '-2 [label="row = [nonce |-> 0, left |-> 0, at |-> {\\"ready\\"}, attempts |-> 0]"];\n'
    )
    assert graph_of(dot) == {(ABSENT, "Send", Row("ready"))}


def test_a_message_ends_as_done_or_dead_and_nothing_follows() -> None:
    edges = graph(2, 3)
    rows = {row for _, _, row in edges}
    ends = {row.at for row in rows - {row for row, _, _ in edges}}
    assert ends == {"done", "dead", "retry"}  # retry: the bound of the exploration, after a last snooze
    assert max(row.attempts for row in rows) == 2
