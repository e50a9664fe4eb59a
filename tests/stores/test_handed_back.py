"""A store that this release has used goes back to an earlier one, which serves the same messages or refuses it."""

from pathlib import Path

import pytest

from tests.stores.handed_back import RELEASES, handed_back, has_history, verdict

pytestmark = [pytest.mark.slow, pytest.mark.process]


@pytest.mark.parametrize("name", RELEASES)
def test_a_store_that_this_release_used_goes_back_to_the_one_that_made_it(name: str, tmp_path: Path) -> None:
    release = RELEASES[name]
    if not has_history(release):
        pytest.skip(f"this clone has no commit {release.commit}")
    handed = handed_back(release, tmp_path)
    assert handed.used > 500
    assert verdict(release, handed) == ""


def test_a_release_that_would_deliver_other_messages_is_noticed(tmp_path: Path) -> None:
    release = RELEASES["last of format 3"]
    if not has_history(release):
        pytest.skip(f"this clone has no commit {release.commit}")
    handed = handed_back(release, tmp_path)
    got = handed.told["got"]
    assert "other messages" in verdict(release, handed._replace(told=handed.told | {"got": got | {"lake": []}}))
    assert "its check finds" in verdict(release, handed._replace(told=handed.told | {"findings": ["something"]}))
    assert "should serve" in verdict(release, handed._replace(told={"refused": "store format 3"}))
    assert "should refuse" in verdict(RELEASES["last of format 1"], handed)
