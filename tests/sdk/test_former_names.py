"""Programs that were written before the namespaces run on, and are told the new names."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

import popmq
from tests.sdk.face import calls_of, namespaces_of, public

CHANGELOG = Path(__file__).parent.parent.parent / "CHANGELOG.md"
#: Former names that are namespaces now.
TAKEN = {"leases", "owners", "sessions", "access_keys"}


def moved() -> dict[str, str]:
    """Former name → namespace.method, as the changelog's table has them."""
    table = CHANGELOG.read_text().partition("| In previews: ")[2].partition("\n\n")[0]
    found = dict[str, str]()
    for former, space, now in re.findall(r"^ *\| (`.*?`) \| `client\.(\w+)`: (`.*`) \|$", table, re.MULTILINE):
        names = zip(former.strip("`").split("`, `"), now.strip("`").split("`, `"), strict=True)
        found |= {name: f"{space}.{method}" for name, method in names}
    return found


@pytest.mark.parametrize("kind", [popmq.Client, popmq.AsyncClient])
def test_each_former_name_warns_in_the_callers_line_and_is_what_replaced_it(
    kind: type[popmq.Client] | type[popmq.AsyncClient],
) -> None:
    client = kind("127.0.0.1:1")
    assert moved().keys() >= {"create_topic", "stats"}
    for former, now in moved().items():
        if former not in TAKEN:
            with pytest.warns(DeprecationWarning, match=rf"client\.{former} is client\.{re.escape(now)} now") as warned:
                assert getattr(client, former) == attrgetter(now)(client)
            assert [each.filename for each in warned] == [__file__]


#: Calls that are newer than the namespaces.
NEW = {"broker.cluster", "messages.reschedule"}


def test_every_call_of_a_namespace_has_its_former_name_in_the_changelog_and_none_is_hidden() -> None:
    in_namespaces = {name for name in calls_of(popmq.Client) if "." in name} - NEW
    assert {*moved().values()} == in_namespaces
    assert moved().keys() & {*public(popmq.Client), *namespaces_of(popmq.Client)} == TAKEN


def test_hints_of_the_broker_name_calls_as_they_are_now() -> None:
    text = "".join(file.read_text() for file in (CHANGELOG.parent / "server").rglob("*.py"))
    named = {call for hint in re.findall(r"\(in Python: (client\.[^)]*)\)", text) for call in hint.split(", ")}
    assert "client.owners.attach" in named
    assert named <= {f"client.{call}" for call in calls_of(popmq.Client)}


def test_a_name_that_never_was_is_an_error_with_the_nearest_one() -> None:
    with popmq.Client("127.0.0.1:1") as client, pytest.raises(AttributeError, match="'Client' object has no") as error:
        client.topcs  # type: ignore[attr-defined]  # noqa: B018 - the error is what is tested
    assert (error.value.name, error.value.obj) == ("topcs", client)
