"""The order of lists: by each column, in both directions."""

import re

import pytest

from popmq_console.sorting import Columns, ordered
from tests.console.conftest import Browser, Site

ROWS = [("b", 2), ("a", 2), ("c", 1)]
COLUMNS: Columns[tuple[str, int]] = {"Name": lambda row: row[0], "Sent/s#": lambda row: row[1], "": None}


def test_rows_are_ordered_by_a_column_and_equal_ones_stay() -> None:
    assert [row[0] for row in ordered(ROWS, COLUMNS, "name").items] == ["a", "b", "c"]
    assert [row[0] for row in ordered(ROWS, COLUMNS, "-sent/s").items] == ["b", "a", "c"]


def test_an_unknown_column_changes_nothing() -> None:
    for sort in ("", "-", "size", "--name"):
        order = ordered(ROWS, COLUMNS, sort)
        assert (order.items, order.sort) == (ROWS, "")


def test_a_click_turns_the_order_and_numbers_begin_with_the_greatest() -> None:
    def clicks(sort: str) -> list[tuple[str, str]]:
        return [(one.sort, one.now) for one in ordered(ROWS, COLUMNS, sort).titles]

    assert clicks("") == [("name", "none"), ("-sent/s", "none"), ("", "none")]
    assert clicks("name")[0] == ("-name", "ascending")
    assert clicks("-sent/s")[1] == ("sent/s", "descending")


@pytest.mark.usefixtures("fresh")
def test_every_titled_column_of_every_list_sorts(site: Site, operator: Browser) -> None:
    site.client.topics.create("orders", queues=2)
    site.client.groups.create("billing")
    site.client.send("orders", ["x"] * 3)
    site.client.pop("orders", "billing")
    paths = ("/topics", "/topic?name=orders", "/groups", "/group?name=billing", "/leases", "/keys")
    for path in paths:
        links = re.findall(r'<th[^>]*><a href="([^"]+)"', operator.get(path).text)
        assert len(links) > 3, path
        for link in links:
            page = operator.get(link.replace("&amp;", "&"))
            assert (page.status, page.text.count('aria-sort="')) == (200, 1), link
