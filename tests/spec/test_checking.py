"""The specification and its table of mutations are complete, and TLC's words are read as they are meant."""

import re

import pytest

from harness.broker_process import ROOT
from tests.spec.checking import MODELS, MUTATIONS, SPEC, Mutation, configuration, module_of, mutated, read

MODULES = sorted(path.name for path in SPEC.glob("*.tla"))
#: Pages whose sentences are the invariants.
PROMISES = ("README.md", "docs/protocol.md", "docs/settle.md", "docs/sinks.md")
TABLE = ROOT / "docs" / "contributing" / "specification.md"


def text_of(module: str) -> str:
    return (SPEC / module).read_text()


def mechanisms_of(module: str) -> set[str]:
    """The mechanisms that a module, or one that it extends or instantiates, can be without."""
    text = text_of(f"{module}.tla")
    found = set(re.findall(r'Has\("([^"]+)"\)', text)) | set(re.findall(r'"([^"]+)" \\in Without', text))
    for other in re.findall(r"^(?:EXTENDS|INSTANCE) (.+)$", text, re.MULTILINE):
        found |= {name for part in other.split(", ") if (SPEC / f"{part}.tla").exists() for name in mechanisms_of(part)}
    return found


def checked(model: str) -> set[str]:
    """The invariants and properties of a configuration."""
    lines = re.findall(r"^(?:INVARIANTS|PROPERTIES) (.+)$", configuration(model), re.MULTILINE)
    return {name for line in lines for name in line.split()}


@pytest.mark.parametrize("model", ["LeasesDeep", "Owners", "Stages", "Settle"])
def test_each_mechanism_of_a_model_is_taken_out_once(model: str) -> None:
    assert {one.mechanism for one in MUTATIONS if one.model == model} == mechanisms_of(module_of(model))


@pytest.mark.parametrize("model", ["LeasesDeep", "Owners", "Stages", "Settle"])
def test_each_guarantee_breaks_without_some_mechanism(model: str) -> None:
    assert {one.breaks for one in MUTATIONS if one.model == model} == checked(model)


def test_a_mutation_is_a_configuration_with_one_thing_to_find() -> None:
    text = mutated(Mutation("Stages", "drop leftovers", "LeftoversGo"))
    assert 'Without = {"drop leftovers"}' in text
    assert [line for line in text.splitlines() if line.startswith(("INV", "PROP"))] == ["PROPERTIES LeftoversGo"]


@pytest.mark.parametrize("model", ["Leases", "Owners", "Stages", "Settle"])
def test_everything_under_what_is_guaranteed_is_checked(model: str) -> None:
    promises = text_of(f"{module_of(model)}.tla").partition("What is guaranteed")[2]
    defined = set(re.findall(r"^([A-Z]\w+) ==", promises, re.MULTILINE))
    assert defined - {"Answers", "Pops", "Alike"} == checked(model)


def test_each_configuration_is_a_model() -> None:
    assert sorted(path.stem for path in SPEC.glob("*.cfg")) == sorted(MODELS)


@pytest.mark.parametrize("model", ["Leases", "Owners", "Settle"])
def test_three_messages_two_clients_and_two_crashes_are_explored(model: str) -> None:
    text = configuration(model)
    assert "Messages = {m1, m2, m3}" in text
    assert "Clients = {c1, c2}" in text
    assert "MaxCrashes = 2" in text


def test_each_invariant_is_in_the_table_of_the_page_with_a_sentence_of_the_documents() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| \[“(.+)”\]\(\.\./(\S+?)\) \|", TABLE.read_text(), re.MULTILINE)
    assert {(model, name) for name, model, _, _ in rows} == {
        (module_of(model), name) for model in MODELS if model != "LifeGraph" for name in checked(model)
    }
    pages = {
        page: re.sub(r"[*`]|\]\([^)]*\)|\[", "", re.sub(r"\s+", " ", (ROOT / page).read_text())) for page in PROMISES
    }
    assert [
        (name, part) for name, _, quoted, page in rows for part in quoted.split(" … ") if part not in pages[_path(page)]
    ] == []


def _path(link: str) -> str:
    return "README.md" if link.startswith("../README.md") else f"docs/{link.partition('#')[0]}"


@pytest.mark.parametrize("module", MODULES)
def test_a_module_is_small_enough_to_be_held(module: str) -> None:
    lines = text_of(module).splitlines()
    assert len(lines) <= 200
    assert max(map(len, lines)) <= 120


def test_what_tlc_says_is_read() -> None:
    whole = read(
        "<Send line 3, col 1 to line 3, col 9 of module Leases>: 3:4\n"
        "<Wake line 4, col 1 to line 4, col 9 of module Leases>: 0:9\n"
        "<Next line 5, col 1 to line 5, col 9 of module Leases (118 6 118 59)>: 0:0\n"
        "Model checking completed. No error has been found.\n"
        "552299 states generated, 87637 distinct states found, 0 states left on queue.\n"
        "The depth of the complete state graph search is 35.\n"
    )
    assert (whole.whole, whole.broken, whole.distinct, whole.depth, whole.idle) == (
        True,
        "",
        87637,
        35,
        ("Next line 5, col 1 to line 5, col 9 of module Leases (118 6 118 59)",),
    )
    broken = read(
        "Error: Invariant LeasedToOne is violated.\n"
        "296 states generated, 147 distinct states found, 82 states left on queue.\n"
    )
    assert (broken.whole, broken.broken) == (False, "LeasedToOne")
    assert read("Error: Action property LeftoversGo is violated.").broken == "LeftoversGo"
    assert not read("java.lang.OutOfMemoryError").whole
