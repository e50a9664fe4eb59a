"""Two judges of one history: both find it sound as it is, and each lie in it."""

import subprocess
from pathlib import Path

import pytest

from tests.jepsen import form, judges, lies, story


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> list[form.Line]:
    return story.told(tmp_path_factory.mktemp("story"))


@pytest.fixture(scope="module")
def porcupine() -> None:
    if why := judges.no_go():
        pytest.skip(why)
    judges.build()


@pytest.mark.process
def test_a_history_that_is_written_and_read_is_the_same(lines: list[form.Line], tmp_path: Path) -> None:
    form.write(tmp_path / "history.jsonl", lines)
    again = form.read(tmp_path / "history.jsonl")
    assert list(form.lines_of(*form.parsed(again))) == again


def test_a_form_of_another_number_is_refused() -> None:
    with pytest.raises(ValueError, match="form 2 is not 1"):
        form.parsed([{"form": 2}])


@pytest.mark.process
def test_our_checker_finds_nothing_in_a_sound_history(lines: list[form.Line]) -> None:
    assert form.judged_here(lines) == []


@pytest.mark.process
@pytest.mark.parametrize("lie", sorted(lies.LIES))
def test_our_checker_finds_each_lie(lines: list[form.Line], lie: str) -> None:
    assert form.judged_here(lies.told(lines, lies.LIES[lie], seed=1))


@pytest.mark.polyglot
@pytest.mark.usefixtures("porcupine")
def test_porcupine_finds_an_order_for_a_sound_history(lines: list[form.Line], tmp_path: Path) -> None:
    form.write(tmp_path / "history.jsonl", lines)
    verdict = judges.judged(tmp_path / "history.jsonl")
    assert (verdict.verdict, verdict.findings) == ("ok", [])
    assert verdict.operations > len(lines)


@pytest.mark.polyglot
@pytest.mark.usefixtures("porcupine")
@pytest.mark.parametrize("lie", sorted(lies.LIES))
def test_porcupine_finds_each_lie_and_draws_it(lines: list[form.Line], lie: str, tmp_path: Path) -> None:
    form.write(tmp_path / "history.jsonl", lies.told(lines, lies.LIES[lie], seed=1))
    verdict = judges.judged(tmp_path / "history.jsonl", pages=tmp_path)
    assert verdict.verdict == "illegal"
    assert lie == "phantom" or "linearization" in Path(verdict.pages[0]).read_text().lower()


@pytest.mark.polyglot
@pytest.mark.usefixtures("porcupine")
def test_the_models_of_the_judge_pass_their_own_tests() -> None:
    subprocess.run(["go", "test", "./..."], cwd=judges.SOURCE, check=True)
