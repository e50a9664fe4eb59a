"""What a release is made of, what is said about it, and the workflows that build and examine it."""

import re
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

from scripts.supply_chain import needed, pruned
from tests.sources import FRAMEWORKS, ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


@pytest.mark.whole
def test_the_list_has_what_the_extras_need_and_not_what_tests_need() -> None:
    seen: dict[str, str] = {}
    assert set(needed("popmq", frozenset({"all"}), seen)) == set()
    texts = distribution("popmq").requires or ()
    # Frameworks are in no extra but their own: whoever installs popmq for Celery has chosen Celery.
    wanted = [each for each in map(Requirement, texts) if not _is_of_a_framework(each)]
    direct = {each.name.lower().replace("_", "-") for each in wanted} - {"popmq"}
    assert direct <= seen.keys()
    assert "cffi" in seen, "what a dependency needs is needed"
    assert not {"pytest", "mypy", "hypothesis"} & seen.keys()
    assert seen["grpcio"] == distribution("grpcio").version


def _is_of_a_framework(requirement: Requirement) -> bool:
    marker = requirement.marker
    if marker is None or marker.evaluate({"extra": ""}):
        return False
    return any(marker.evaluate({"extra": name}) for name in FRAMEWORKS)


def test_a_bill_of_materials_has_what_is_needed_and_nothing_else() -> None:
    def part(name: str) -> dict[str, Any]:
        return {"bom-ref": f"{name}==1", "name": name}

    bom = {
        "specVersion": "1.6",
        "metadata": {"component": part("root")},
        "components": [part("Typing_Extensions"), part("tool")],
        "dependencies": [
            {"ref": "root==1", "dependsOn": ["Typing_Extensions==1"]},
            {"ref": "Typing_Extensions==1", "dependsOn": ["tool==1"]},
            {"ref": "tool==1"},
        ],
    }
    found = pruned(bom, {"typing-extensions"}, "1.2.3")
    assert found["components"] == [part("Typing_Extensions")]
    assert found["dependencies"] == [
        {"ref": "root==1", "dependsOn": ["Typing_Extensions==1"]},
        {"ref": "Typing_Extensions==1", "dependsOn": []},
    ]
    assert found["metadata"]["component"]["version"] == "1.2.3"
    assert found["specVersion"] == "1.6"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_begins_with_no_rights_and_runs_targets_that_exist(path: Path) -> None:
    text = path.read_text()
    assert "\npermissions:\n  contents: read\n\njobs:" in text, "a job that needs more says so itself"
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    if "run: .ci/run" in text:
        text += (ROOT / ".ci" / "run").read_text()
    named = set(re.findall(r"make ([a-z-]+)", text))
    for matrix in re.findall(r"what: \[(.*)\]", text):
        named |= {word.strip(' "').split()[0] for word in matrix.split(",")}
    assert named
    assert named <= targets


def test_a_pull_request_is_tested_by_the_command_of_any_other_machine_and_gets_no_rights() -> None:
    text = (ROOT / ".github" / "workflows" / "pull-request.yml").read_text()
    assert re.findall(r"run: (.*)", text) == [".ci/run"]
    assert "\n  pull_request:\n" in text
    assert not re.search(r"pull_request_target|secrets|: write", text)


def test_a_release_is_built_examined_and_signed_before_it_is_published() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    steps = ("make audit", "make dist", "make sbom", "attest-build-provenance", "attest-sbom", "gh-action-pypi-publish")
    places = [text.index(step) for step in steps]
    assert places == sorted(places)
    assert [name for name, job in jobs().items() if "id-token: write" in job] == ["attest", "publish", "attest-image"]


def jobs() -> dict[str, str]:
    """The jobs of a release by name."""
    _, _, text = (ROOT / ".github" / "workflows" / "release.yml").read_text().partition("\njobs:\n")
    names_and_texts = re.split(r"^  ([a-z-]+):\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))


def test_a_job_that_signs_runs_nothing_of_the_clone_and_no_command() -> None:
    signing = [job for job in jobs().values() if re.search(r"(?:id-token|attestations): write", job)]
    assert len(signing) == 3
    for job in signing:
        assert "actions/checkout" not in job
        assert "setup-python" not in job
        assert "run:" not in job


def test_only_an_approved_job_writes_where_users_load_from() -> None:
    for job in jobs().values():
        if "gh-action-pypi-publish" in job or "push: true" in job:
            assert "environment: release" in job


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_an_action_is_a_commit_and_says_its_release(path: Path) -> None:
    used = re.findall(r"uses: (.*)", path.read_text())
    assert used
    assert [one for one in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
