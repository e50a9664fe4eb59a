"""scripts/changed_tests.py: a change is looked at by its tests, or by all of them."""

from pathlib import Path

import pytest

from scripts import changed_tests
from scripts.changed_tests import AREAS, PAGES, SMOKE, chosen
from tests.sources import ROOT

RULES = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").glob("test_*.py"))


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("server/popmq_server/embedded/rules/lite/lite_topics.py", "tests/engine/lite"),
        ("server/popmq_server/embedded/state/tx.py", "tests/engine"),
        ("server/popmq_server/protocols/access/keys.py", "tests/wire/access"),
        ("sdk/popmq/topic.py", "tests/sdk"),
        ("tests/engine/delivery/test_pop.py", "tests/engine/delivery/test_pop.py"),
        ("tests/engine/rig.py", "tests/engine"),
        ("server/popmq_server/embedded/rules/delivery/pick.py", "tests/release/test_figures.py"),  # which imports it
        ("docs/operations.md", "tests/release"),
    ],
)
def test_a_change_chooses_its_tests_the_rules_and_the_smoke_test(path: str, tests: str) -> None:
    arguments = chosen([path])
    assert {tests, SMOKE, *RULES} <= set(arguments)
    assert "tests/interop" not in arguments


@pytest.mark.parametrize("path", ["pyproject.toml", "proto/popmq/v1/popmq.proto", "tests/conftest.py", "new/thing.py"])
def test_a_file_without_an_area_chooses_all_tests_whatever_else_changed(path: str) -> None:
    assert chosen([path, "sdk/popmq/topic.py"]) == []


def test_without_a_main_to_compare_with_all_tests_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(changed_tests, "git", lambda *words: [])
    changed_tests.main()
    told = capsys.readouterr()
    assert (told.out, told.err) == ("\n", "check-fast: no main to compare with: all quick tests\n")


def test_pages_run_when_a_page_or_what_it_names_changed() -> None:
    assert f"--deselect={PAGES}" not in [*chosen(["docs/fifo.md"]), *chosen(["sdk/popmq_cli/main.py"])]
    assert f"--deselect={PAGES}" in chosen(["server/popmq_server/embedded/state/tx.py"])


def test_a_test_module_that_is_gone_is_not_asked_for() -> None:
    assert "tests/engine/test_gone.py" not in chosen(["tests/engine/test_gone.py"])


def test_each_area_is_there_and_has_tests() -> None:
    assert [place for place in (*AREAS, *sum(AREAS.values(), ())) if not (ROOT / place).exists()] == []
    assert (ROOT / PAGES.partition("::")[0]).exists()
    assert f"def {PAGES.partition('::')[2]}(" in Path(ROOT / "tests/test_docs.py").read_text()
