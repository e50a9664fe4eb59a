"""What the campaign counts: each kind of loss is seen."""

from pathlib import Path

from tests.integrations.campaign.campaign import Counts, judge, runs_of

DUE, BEGUN, WORKER = 100.0, 101.0, 7


def judged(
    runs: list[tuple[float, float, float, int]], killed: list[tuple[int, float]], away: list[tuple[float, float]]
) -> Counts:
    counts = Counts("any", "popmq")
    judge(counts, {1: runs}, killed, away)
    return counts


def test_a_run_before_its_time_is_early() -> None:
    assert judged([(DUE, 99.9, 99.95, WORKER)], [], []).early == 1
    assert judged([(DUE, BEGUN, 101.1, WORKER)], [], []).early == 0


def test_a_second_run_has_a_cause_if_its_worker_was_killed_or_the_broker_was_away_in_between() -> None:
    runs = [(DUE, BEGUN, 101.1, WORKER), (DUE, 105.0, 105.1, 8)]
    by_kill = judged(runs, [(WORKER, 103.0)], [])
    assert (by_kill.again, by_kill.most, by_kill.outage) == (1, 1, 0)
    assert judged(runs, [], [(100.0, 101.2)]).outage == 1  # it came back while the first one ran
    assert judged(runs, [], [(103.0, 104.0)]).outage == 1


def test_a_second_run_without_a_cause_is_counted() -> None:
    runs = [(DUE, BEGUN, 101.1, WORKER), (DUE, 105.0, 105.1, 8)]
    assert judged(runs, [(9, 103.0), (WORKER, 106.0)], [(106.0, 107.0), (50.0, 51.0)]).twice == 1


def test_runs_are_read_from_the_log(tmp_path: Path) -> None:
    log = tmp_path / "runs.txt"
    log.write_text("1 100.0 101.0 101.1 7\n1 100.0 105.0 105.1 8\n2 100.0 101.0 101.1 7\n")
    assert {number: len(found) for number, found in runs_of(log).items()} == {1: 2, 2: 1}
    assert runs_of(tmp_path / "nothing") == {}
