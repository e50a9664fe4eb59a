"""SQL92 filters: the reference's table of rules with our result beside its, limits, and mistakes with their places.

Each row is one rule: an expression, a message, the result that the reference gives, and ours. docs/filters.md tells why
they differ where they do.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from popmq_server.errors import Refused
from popmq_server.values.filters import sql92
from popmq_server.values.filters.errors import TEXT_BYTES_MAX
from popmq_server.values.filters.parts import LIST_MAX
from popmq_server.values.filters.sql92 import DEPTH_MAX, WORDS_MAX

T, F, N = True, False, None
REFUSED, RAISES = "refused", "an exception: no match"


class Row(NamedTuple):
    """`properties` is `name=text` separated by blanks; a property without an entry is absent."""

    text: str
    properties: str
    reference: bool | str | None
    ours: bool | str | None


TABLE = [
    # AND and OR: the whole truth tables, NULL being a comparison with something absent.
    Row("TRUE AND TRUE", "", T, T),
    Row("TRUE AND FALSE", "", F, F),
    Row("TRUE AND no = 'x'", "", N, N),
    Row("FALSE AND no = 'x'", "", F, F),
    Row("no = 'x' AND TRUE", "", N, N),
    Row("no = 'x' AND FALSE", "", F, F),
    Row("no = 'x' AND no = 'x'", "", N, N),
    Row("FALSE OR FALSE", "", F, F),
    Row("TRUE OR no = 'x'", "", T, T),
    Row("FALSE OR no = 'x'", "", N, N),
    Row("no = 'x' OR TRUE", "", T, T),
    Row("no = 'x' OR FALSE", "", N, N),
    Row("no = 'x' OR no = 'x'", "", N, N),
    Row("NOT (no = 'x')", "", N, N),
    Row("NOT TRUE", "", F, F),
    Row("NOT FALSE", "", T, T),
    # A property that is absent.
    Row("no = 'x'", "", N, N),
    Row("no <> 'x'", "", N, N),
    Row("no > 1", "", N, N),
    Row("no >= 1", "", N, N),
    Row("no < 1", "", N, N),
    Row("no <= 1", "", N, N),
    Row("no BETWEEN 1 AND 2", "", N, N),
    Row("no NOT BETWEEN 1 AND 2", "", N, N),
    Row("no IN ('x', 'y')", "", N, N),
    Row("no NOT IN ('x', 'y')", "", N, N),
    Row("no IS NULL", "", T, T),
    Row("no IS NOT NULL", "", F, F),
    Row("a IS NULL", "a=x", F, F),
    Row("a IS NOT NULL", "a=x", T, T),
    Row("no CONTAINS 'x'", "", F, F),
    Row("no NOT CONTAINS 'x'", "", F, F),
    Row("no STARTSWITH 'x'", "", F, F),
    Row("no NOT STARTSWITH 'x'", "", F, F),
    Row("no ENDSWITH 'x'", "", F, F),
    Row("no NOT ENDSWITH 'x'", "", F, F),
    Row("a CONTAINS ''", "a=x", F, F),
    Row("a NOT CONTAINS ''", "a=x", F, F),
    Row("a STARTSWITH ''", "a=x", F, F),
    Row("a NOT ENDSWITH ''", "a=x", F, F),
    # NULL is NULL on either side.
    Row("'x' <> a", "", T, N),
    Row("a = b", "", T, N),
    Row("a <> b", "a=x", T, N),
    Row("'x' = no", "", F, N),
    Row("5 = no", "", F, N),
    Row("TRUE = no", "", F, N),
    Row("'x' <> no", "", T, N),
    Row("no = alsono", "", T, N),
    Row("no <> alsono", "", F, N),
    Row("no = a", "a=x", N, N),
    Row("a = no", "a=x", F, N),
    # Text beside whole numbers.
    Row("a = 5", "a=5", T, T),
    Row("a <> 5", "a=5", F, F),
    Row("a > 5", "a=6", T, T),
    Row("a > 5", "a=7.5", RAISES, T),
    Row("a = 5", "a=5.0", RAISES, T),
    Row("a > 5", "a=3000000000", RAISES, T),
    Row("a > 3000000000", "a=3000000001", T, T),
    Row("a = 9007199254740993", "a=9007199254740993", T, T),
    Row("a = 9007199254740993", "a=9007199254740992", F, F),
    Row("a BETWEEN 1 AND 2", "a=1.5", RAISES, T),
    # Text beside decimals.
    Row("a = 5.0", "a=5", T, T),
    Row("a > 5.", "a=5.5", T, T),
    Row("a < .5", "a=0.25", T, T),
    Row("a = 5E3", "a=5000", T, T),
    Row("a = 5e-1", "a=0.5", T, T),
    # Two properties.
    Row("a > b", "a=10 b=9", T, T),
    Row("a >= b", "a=1e1 b=10", T, T),
    Row("a > b", "a=x b=9", RAISES, N),
    Row("a = b", "a=x b=x", T, T),
    Row("a = b", "a=5 b=5.0", F, F),
    Row("a <> b", "a=x b=y", T, T),
    # A text that is not a number.
    Row("a > 5", "a=x", RAISES, N),
    Row("a = 5", "a=x", RAISES, N),
    Row("a <> 5", "a=x", RAISES, N),
    Row("a > 5 OR b = 'y'", "a=x b=y", RAISES, T),
    Row("b = 'y' OR a > 5", "a=x b=y", T, T),
    Row("a > 5 AND b = 'n'", "a=x b=y", RAISES, F),
    Row("NOT (a > 5)", "a=x", RAISES, N),
    Row("a > 5", "a=", RAISES, N),
    Row("a > 5", "a=NaN", RAISES, N),
    Row("a > 5", "a=1_000", RAISES, N),
    Row("a > 5", "a=٧", T, N),
    # Text beside truth values.
    Row("a = TRUE", "a=true", T, T),
    Row("a = TRUE", "a=TRUE", T, T),
    Row("a = TRUE", "a=false", F, F),
    Row("a = FALSE", "a=false", T, T),
    Row("a = FALSE", "a=maybe", T, N),
    Row("a = TRUE", "a=x", F, N),
    Row("TRUE = a", "a=true", RAISES, T),
    Row("a = (b = 'x')", "a=true b=x", T, T),
    Row("(a = 'x') = (b = 'y')", "a=x b=y", T, T),
    Row("(a = 'x') <> (b = 'y')", "a=x b=z", T, T),
    Row("(a = 'x') = 5", "a=x", F, N),
    # A property alone is a text, not a condition.
    Row("a", "a=true", F, F),
    Row("a", "", N, N),
    Row("NOT a", "a=x", T, T),
    Row("NOT a", "a=true", T, T),
    Row("NOT a", "", N, N),
    Row("a AND TRUE", "a=true", F, F),
    Row("a OR TRUE", "a=x", T, T),
    # Signs.
    Row("-a > 5", "a=-6", N, N),
    Row("-a = 5", "a=-5", N, N),
    Row("+a = 'x'", "a=x", T, T),
    Row("a = -5", "a=-5", T, T),
    Row("a = - -5", "a=5", T, T),
    Row("a > -(5)", "a=-4", T, T),
    Row("-'x' IS NULL", "", T, T),
    Row("+a IN ('x')", "a=x", T, T),
    # Precedence.
    Row("NOT a = 5", "a=4", F, N),
    Row("NOT a = 'true'", "a=4", RAISES, T),
    Row("NOT (a = 5)", "a=4", T, T),
    Row("TRUE OR FALSE AND FALSE", "", T, T),
    Row("(TRUE OR FALSE) AND FALSE", "", F, F),
    Row("NOT TRUE OR TRUE", "", T, T),
    Row("NOT (TRUE OR TRUE)", "", F, F),
    Row("a = 5 IS NULL", "", T, T),
    Row("a = 'x' = TRUE", "a=x", T, T),
    Row("a = b = 'x'", "a=x b=x", RAISES, N),
    Row("a BETWEEN 1 AND 2 AND b = 'x'", "a=1 b=x", T, T),
    Row("a > 1 = b > 1", "a=2 b=2", T, T),
    # BETWEEN, IN and the words.
    Row("a BETWEEN 1 AND 3", "a=3", T, T),
    Row("a BETWEEN 1 AND 3", "a=3.1", RAISES, F),
    Row("a NOT BETWEEN 1 AND 3", "a=4", T, T),
    Row("a NOT BETWEEN 1 AND 3", "a=1", F, F),
    Row("2 BETWEEN a AND b", "a=1 b=3", T, T),
    Row("a BETWEEN -2 AND -1", "a=-1", T, T),
    Row("a BETWEEN 2 AND 2", "a=2", T, T),
    Row("a IN ('x', 'y')", "a=y", T, T),
    Row("a IN ('x', 'y')", "a=z", F, F),
    Row("a NOT IN ('x', 'y')", "a=z", T, T),
    Row("a NOT IN ('x')", "a=x", F, F),
    Row("a CONTAINS 'bc'", "a=abcd", T, T),
    Row("a NOT CONTAINS 'bc'", "a=abcd", F, F),
    Row("a NOT CONTAINS 'x'", "a=abcd", T, T),
    Row("a STARTSWITH 'ab'", "a=abcd", T, T),
    Row("a STARTSWITH 'bc'", "a=abcd", F, F),
    Row("a NOT STARTSWITH 'bc'", "a=abcd", T, T),
    Row("a ENDSWITH 'cd'", "a=abcd", T, T),
    Row("'abc' CONTAINS 'b'", "", T, T),
    Row("5 CONTAINS '5'", "", F, F),
    Row("5 NOT CONTAINS '5'", "", F, F),
    Row("a NOT ENDSWITH 'cd'", "a=abcd", F, F),
    # How things are written.
    Row("a = 'it''s'", "a=it's", T, T),
    Row("a = ''", "a=", T, T),
    Row("a Is nOt NuLl aNd TrUe", "a=x", T, T),
    Row("A = 'x'", "a=x", N, N),
    Row("$a_1 = 'x'", "$a_1=x", T, T),
    Row("a = 5L", "a=5", T, T),
    Row("a = 0", "a=0", T, T),
    Row("a /* a comment */ = -- and another\n 'x'", "a=x", T, T),
    Row("a = '--x'", "a=--x", T, T),
    Row("a = 0.0", "a=0", REFUSED, T),
    Row("a > 0.0", "a=1", REFUSED, T),
    Row("5 > 3", "", T, T),
    Row("'5' = 5", "", T, T),
    Row("NULL IS NULL", "", T, T),
    Row("NULL OR a = 'x'", "a=x", T, T),
    Row("a = -9223372036854775808", "a=-9223372036854775808", REFUSED, T),
    # Refused when the filter is made.
    Row("a > 'x'", "", REFUSED, REFUSED),
    Row("a > TRUE", "", REFUSED, REFUSED),
    Row("a > NULL", "", REFUSED, REFUSED),
    Row("a > (b = 'x')", "", REFUSED, REFUSED),
    Row("a > 1 > 2", "", REFUSED, REFUSED),
    Row("a = NULL", "", REFUSED, REFUSED),
    Row("NULL <> a", "", REFUSED, REFUSED),
    Row("a BETWEEN NULL AND 2", "", REFUSED, REFUSED),
    Row("a BETWEEN 1 AND NULL", "", REFUSED, REFUSED),
    Row("a BETWEEN 2 AND 1", "", REFUSED, REFUSED),
    Row("a NOT BETWEEN 2 AND 1", "", N, REFUSED),
    Row("a BETWEEN -1 AND -2", "a=-1", F, REFUSED),
    Row("a BETWEEN 'a' AND 'b'", "", REFUSED, REFUSED),
    Row("'x' IN ('x')", "", REFUSED, REFUSED),
    Row("5 IN ('x')", "", REFUSED, REFUSED),
    Row("TRUE = 5", "", REFUSED, REFUSED),
    Row("5 = TRUE", "", F, REFUSED),
    Row("5", "", REFUSED, REFUSED),
    Row("'x'", "", REFUSED, REFUSED),
    Row("a = 'x' AND 5", "", REFUSED, REFUSED),
    Row("'x' OR TRUE", "", REFUSED, REFUSED),
    Row("NOT 5", "", REFUSED, REFUSED),
    Row("-5", "", REFUSED, REFUSED),
    Row("a = 1 garbage", "a=1", T, REFUSED),
    Row("a = 1)", "a=1", T, REFUSED),
    Row("a = 9223372036854775809", "", REFUSED, REFUSED),
    Row("a = 1E400", "", REFUSED, REFUSED),
    Row("a LIKE 'x%'", "", N, REFUSED),
    # The reference's parser stops after a complete expression: it takes these for `a`, `lower` and `a = 0`.
    Row("a + 1 = 2", "", N, REFUSED),
    Row("a != 1", "", REFUSED, REFUSED),
    Row("a == 1", "", REFUSED, REFUSED),
    Row("lower(a) = 'x'", "", N, REFUSED),
    Row("a = 0x1F", "", N, REFUSED),
    Row("a = 017", "", N, REFUSED),
    Row("a IN (1, 2)", "", REFUSED, REFUSED),
    Row("a IN ()", "", REFUSED, REFUSED),
    Row('a = "x"', "", REFUSED, REFUSED),
    Row("a ORb", "", N, REFUSED),
    Row("", "", REFUSED, REFUSED),
]


def result(text: str, properties: dict[str, str]) -> bool | str | None:
    try:
        return sql92.compiled(text)(properties)
    except Refused as error:
        return REFUSED if (error.code, error.field) == ("FILTER_INVALID", "filter.sql92") else error.code


def read(properties: str) -> dict[str, str]:
    return dict(pair.split("=", 1) for pair in properties.split())


@pytest.mark.parametrize(
    "row", TABLE, ids=lambda row: f"{row.text} | {row.properties} | reference: {row.reference}, here: {row.ours}"
)
def test_a_row_of_the_table_of_sql92(row: Row) -> None:
    assert result(row.text, read(row.properties)) == row.ours


def differences() -> list[tuple[str, str, str]]:
    """(expression, message, our result) of each row of the page's table of differences."""
    page = (Path(__file__).parents[3] / "docs" / "filters.md").read_text()
    table = page.split("## Differences from RocketMQ")[1].split("\n## ")[0]
    cells = [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if "| `" in line]
    return [(row[0], row[1], row[3]) for row in cells]


@pytest.mark.parametrize(("text", "properties", "told"), differences())
def test_the_page_tells_the_differences_as_they_are(text: str, properties: str, told: str) -> None:
    assert result(text, read(properties)) == {"TRUE": T, "FALSE": F, "NULL": N}.get(told, told)
    (row,) = (row for row in TABLE if (row.text, row.properties) == (text, properties))
    assert row.reference != row.ours


def refused(text: str) -> Refused:
    with pytest.raises(Refused) as caught:
        sql92.compiled(text)
    return caught.value


@pytest.mark.mechanism("S2.28")
@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("", "line 1, column 1 (offset 0)", "the text ends here, expected"),
        ("a =", "line 1, column 4 (offset 3)", "the text ends here, expected"),
        ("a = 1 garbage", "line 1, column 7 (offset 6)", "'garbage' is not allowed here, expected"),
        ("a = 1\n  AND b ==\n 2", "line 2, column 10 (offset 15)", "'=' is not allowed here, expected"),
        ("a = 'x", "line 1, column 5 (offset 4)", "no closing quote"),
        ("a = 1 /* b", "line 1, column 7 (offset 6)", "no end"),
        ("a = 1 AND\nb # 2", "line 2, column 3 (offset 12)", "'#' has no meaning here"),
        ("(a = 1", "line 1, column 7 (offset 6)", "the text ends here, expected"),
        ("a IN ('x' 'y')", "line 1, column 11 (offset 10)", "expected ) or ,"),
        ("a IS 5", "line 1, column 6 (offset 5)", "expected NOT or NULL"),
        ("a = 1 AND b > 'x'", "line 1, column 15 (offset 14)", "a text has no order"),
        ("a = 1 OR b = NULL", "line 1, column 14 (offset 13)", "nothing is equal to NULL"),
        ("a = 1 OR b BETWEEN 5 AND 4", "line 1, column 20 (offset 19)", "no number is between 5 and 4"),
        ("a = 1 OR 'b' IN ('b')", "line 1, column 10 (offset 9)", "a text cannot be in a list, expected a property"),
        ("a = 1 AND 5", "line 1, column 11 (offset 10)", "a number is neither a condition nor a property"),
        ("b = 1 AND TRUE = 5", "line 1, column 18 (offset 17)", "a condition cannot be compared with a number"),
    ],
)
def test_a_mistake_is_reported_with_its_place_and_with_what_could_stand_there(text: str, place: str, why: str) -> None:
    assert str(refused(text)).startswith(f"{place}: ")
    assert why in str(refused(text))


def test_a_syntax_error_lists_the_expected_words() -> None:
    told = str(refused("a BETWEEN 1 OR 2"))
    assert told.endswith("'OR' is not allowed here, expected AND")
    told = str(refused("a >"))
    assert "expected (, +, -, FALSE, NOT, NULL, TRUE, a number, a property or a text in single quotes" in told


@pytest.mark.parametrize(
    ("text", "cure"),
    [
        ("a = NULL", "IS NULL"),
        ("a != 1", "<>"),
        ("a == 1", "write one ="),
        ("a like 'x'", "CONTAINS"),
        ('a = "x"', "single quotes"),
        ("a * 2 = 4", "no arithmetic"),
        ("a BETWEEN 2 AND 1", "smaller one first"),
        ("a = 99999999999999999999", "decimal point"),
    ],
)
def test_a_common_mistake_comes_with_its_cure(text: str, cure: str) -> None:
    assert cure in refused(text).action


@pytest.mark.mechanism("S2.34")
def test_the_text_is_bounded_in_bytes() -> None:
    longest = "a = '" + "é" * ((TEXT_BYTES_MAX - 6) // 2) + "'"
    assert len(longest.encode()) == TEXT_BYTES_MAX
    assert sql92.compiled(longest)({"a": longest[5:-1]})
    assert f"{TEXT_BYTES_MAX + 1} bytes" in str(refused(longest + " "))


@pytest.mark.parametrize(
    ("innermost", "around"),
    [
        ("a = 'x'", "({})"),
        ("NOT a", "NOT {}"),
        ("a IS NULL", "{} IS NULL"),
        ("-5 IS NULL", "- {}"),
        ("a > 5", "{} = TRUE"),
    ],
)
def test_the_depth_of_an_expression_is_bounded(innermost: str, around: str) -> None:
    """The innermost counts as one; what the levels are made of does not matter."""
    text = innermost
    for _ in range(DEPTH_MAX - 1 - innermost.startswith("-")):
        text = around.format(text)
    assert sql92.compiled(text)({"a": "x"}) in (True, False, None)
    assert f"more than {DEPTH_MAX} operators" in str(refused(around.format(text)))


def test_width_is_not_depth() -> None:
    """A hundred alternatives are evaluated without a hundred frames."""
    text = " OR ".join(f"a=1{number}" for number in range(2 * DEPTH_MAX))
    decide = sql92.compiled(text)
    assert [decide({"a": "1127"}), decide({"a": "2"}), decide({})] == [True, False, None]


def test_words_are_bounded_before_a_text_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    most = " AND ".join(["a = 1"] * (WORDS_MAX // 4)) + " /* and no word more */"
    assert sql92.compiled(most)({"a": "1"})
    texts = ",".join(["'x'"] * (WORDS_MAX // 2 - 10))
    assert sql92.compiled(f"a IN ({texts}) AND b IN ({texts})")({"a": "x", "b": "x"})
    monkeypatch.setattr(sql92, "_parsed", None)
    error = str(refused(most + "AND b"))
    assert f"more than {WORDS_MAX} words" in error
    assert f"offset {len(most) + 4})" in error


def test_a_whole_number_of_any_length_is_refused_with_its_place() -> None:
    for digits in (20, 4_301, 8_000):
        assert "offset 4): this whole number has more than 64 bits" in str(refused("a = " + "9" * digits))


def test_lists_are_bounded_with_the_place_of_the_first_text_too_many() -> None:
    texts = [f"'{number}'" for number in range(LIST_MAX + 1)]
    assert sql92.compiled(f"a IN ({','.join(texts[:-1])})")({"a": "255"})
    error = str(refused(f"a IN ({','.join(texts)})"))
    assert f"{LIST_MAX + 1} texts" in error
    assert f"offset {len('a IN (') + len(','.join(texts[:-1])) + 1})" in error


def test_a_long_text_that_is_almost_a_number_costs_no_time() -> None:
    """The pattern of numbers must not try every way to cut it: this took hours if it did."""
    assert sql92.compiled("a > 5")({"a": "1" * 60_000 + "x"}) is None
    assert sql92.compiled("a > 5")({"a": "1" * 60_000}) is True
