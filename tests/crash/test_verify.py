"""`popmq verify`: what it reports of a broker that keeps its promises, and of one that does not."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from popmq_verify import report, stages, verifying
from popmq_verify.full import small_file
from popmq_verify.judging.checker import CLAIMS
from popmq_verify.stages import STAGES, Outcome, Plan, run

PROGRAM = [sys.executable, "-c", "from popmq_cli.main import main; main()", "verify"]


def test_each_claim_of_the_checker_has_a_kind_that_users_understand() -> None:
    known = {claim for claims in report.KINDS.values() for claim in claims}
    assert known == {*CLAIMS, "late"}
    assert report.KINDS.keys() == report.MEANINGS.keys()
    assert report.TITLES.keys() == STAGES.keys()


def test_the_settings_of_the_broker_that_change_what_it_does_are_those_of_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPMQ_SYNC", "meta")
    monkeypatch.delenv("POPMQ_JOURNAL", raising=False)
    text = 'data = "data"\nport = 1\nmax_size = "64MiB"\njournal = "off"\ntls_only = true\n'
    (tmp_path / "popmq.toml").write_text(text)
    plan = verifying.plan(str(tmp_path / "popmq.toml"), 1, None, 5)
    flags = ("--sync", "meta", "--journal", "off", "--max-size", str(64 << 20))
    assert plan == Plan(tmp_path, flags, "meta", 1, 5)
    outcome = run(plan, "power cuts")
    assert outcome.findings == []
    assert outcome.skipped, "a power cut may lose messages with this setting, or this machine cannot test it"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--config", "nowhere.toml"], "nowhere.toml"),
        (["--only", "thunder"], "there is no stage 'thunder': kills"),
        (["--scratch", "/nowhere"], "/nowhere does not exist: make it"),
        (["--report", "/nowhere/page.html"], "/nowhere/page.html cannot be written: name another file"),
        (["--report", "."], ". cannot be written: name another file"),
        (["--config", "gateway.toml"], "engine = rocketmq (gateway.toml): a gateway keeps no messages"),
    ],
)
def test_a_verification_that_cannot_run_ends_with_a_sentence(words: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").write_text('engine = "rocketmq"\nnamesrv = ["127.0.0.1:9876"]\n')
    others = {name: value for name, value in os.environ.items() if name != "POPMQ_JOURNAL"}  # a gateway has none
    done = subprocess.run([*PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=60, env=others)
    assert (done.returncode, why in done.stderr, "Traceback" in done.stderr) == (2, True, False)


def test_a_report_says_what_was_found_in_the_words_of_a_user(tmp_path: Path) -> None:
    bad = Outcome("kills", [("lost", "m1 <b> is gone"), ("overlap", "m2")], {"kills": 7}, seconds=3)
    left_out = Outcome("slow disk", skipped="there is no C compiler")
    assert report.sentence([bad, left_out]).startswith("FAIL: 1 lost, 1 overlapping.")
    assert report.sentence([left_out]).startswith("NOTHING TESTED")
    good = Outcome("kills", figures={"kills": 7})
    assert report.sentence([good, left_out]) == (
        "PASS: nothing lost, repeated, overlapping or late. Not tested here: slow disk."
    )
    report.write(tmp_path / "page.html", [bad, left_out], "default settings", 5)
    page = (tmp_path / "page.html").read_text()
    assert "m1 &lt;b&gt; is gone" in page
    assert "there is no C compiler" in page
    assert "seed 5" in page
    assert any("✗ lost: m1" in line for line in report.lines(bad))


def test_a_report_is_utf8_in_each_locale(tmp_path: Path) -> None:
    code = (
        "from pathlib import Path; from popmq_verify import report; report.write(Path('page.html'), [], chr(8230), 5)"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **ascii_only}, timeout=60, check=True)
    assert "settings: …" in (tmp_path / "page.html").read_text("utf-8")


@pytest.mark.slow
def test_a_broker_that_does_not_start_is_a_finding(tmp_path: Path) -> None:
    outcome = run(
        Plan(
            tmp_path,
            (
                "--max-size",
                "1",
            ),
        ),
        "kills",
    )
    assert [claim for claim, _ in outcome.findings] == ["store"]
    assert report.sentence([outcome]).startswith("FAIL: 1 counted or stored wrongly")
    assert list(tmp_path.iterdir()) == [], "the scratch folder is removed"


def test_stages_run_at_the_same_time_and_are_reported_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(stages.AT_ONCE, timeout=30)

    def stage(_: Plan, folder: Path, outcome: Outcome) -> None:
        together.wait()
        outcome.findings.append(("store", folder.name))

    names = list(STAGES)[: stages.AT_ONCE]
    monkeypatch.setattr(stages, "STAGES", dict.fromkeys(names, stage))
    ended: list[Outcome] = []
    outcomes = stages.run_all(Plan(tmp_path), names, ended.append)
    assert [outcome.name for outcome in outcomes] == names
    assert len({outcome.findings[0] for outcome in outcomes}) == len(names), "each has a folder of its own"
    assert sorted(ended, key=outcomes.index) == outcomes


@pytest.mark.chaos
def test_a_small_data_file_is_filled_and_serves_again(tmp_path: Path) -> None:
    figures: dict[str, int] = {}
    assert small_file(tmp_path / "x" / "data", ("--sync", "none"), figures) == []
    assert figures["acks while the data file was full"] == 100
    assert figures["messages that filled the data file"] > 100


@pytest.mark.chaos
@pytest.mark.usefixtures("shim")
def test_a_user_who_verifies_a_sound_broker_gets_a_pass_and_a_page(tmp_path: Path) -> None:
    """Two stages, and the smallest of each: the campaigns of this folder run the others."""
    words = ["--minutes", "0.1", "--only", "clock jumps", "--only", "slow disk", "--seed", "1"]
    done = subprocess.run(
        [*PROGRAM, *words], cwd=tmp_path, capture_output=True, text=True, timeout=240, env={**os.environ}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[2/2] pass" in done.stdout
    assert "--minutes 30 has thirty times as much" in done.stdout, "what a short run leaves out"
    assert "PASS: nothing lost, repeated, overlapping or late." in done.stdout
    assert "jumps of the wall clock" in (tmp_path / "popmq-verify.html").read_text()
