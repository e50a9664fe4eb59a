"""Tag filters, and what a filter is: made once from its text, asked for every message. T.01–T.08 of the mechanisms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.errors import Refused
from popmq_server.values import fields
from popmq_server.values.filters import filter as filters
from popmq_server.values.filters import tag
from popmq_server.values.filters.errors import TEXT_BYTES_MAX
from popmq_server.values.message import TAG_BYTES_MAX
from popmq_server.values.outgoing import tag_hash


def stored(tag: str = "", keys: tuple[str, ...] = (), **properties: str) -> bytes:
    """A message as the log has it."""
    return pb.Message(message_id="m", body=b"b", tag=tag, keys=keys, properties=properties).SerializeToString()


def refused(kind: str, text: str) -> Refused:
    with pytest.raises(Refused) as caught:
        filters.make(kind, text)
    assert (caught.value.code, caught.value.field) == ("FILTER_INVALID", f"filter.{kind}")
    return caught.value


@pytest.mark.mechanism("S2.44")
@pytest.mark.parametrize("text", ["", "*", " * ", "   "])
def test_absent_empty_and_star_are_every_message(text: str) -> None:
    made = filters.make("tag", text)
    assert made.everything
    assert made.hashes is None
    assert made.matches(stored("a"))
    assert made.matches(stored())


@pytest.mark.parametrize("text", ["a||b", " a || b ", "b||a", "a||||b||", "||a||b||a", "\ta\n||\nb"])
def test_a_list_is_split_trimmed_and_has_each_tag_once(text: str) -> None:
    made = filters.make("tag", text)
    assert made.same(filters.make("tag", "a || b"))
    assert made.text == "a || b"
    assert [made.matches(stored(one)) for one in ("a", "b", "c", "")] == [True, True, False, False]


@pytest.mark.parametrize("text", ["||", " || ", "|| || ||"])
def test_only_pipes_are_an_error(text: str) -> None:
    assert "no tag" in str(refused("tag", text))


def test_a_star_in_a_list_is_a_tag_like_any_other() -> None:
    made = filters.make("tag", "* || a")
    assert [made.matches(stored(one)) for one in ("*", "a", "b", "")] == [True, True, False, False]
    alone = filters.make("tag", "*||")
    assert not alone.everything
    assert [alone.matches(stored(one)) for one in ("*", "a")] == [True, False]
    assert filters.make("tag", alone.text).same(alone)


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("a|b", "column 1 (offset 0)", "'|'"),
        ("a || b c", "column 6 (offset 5)", "space"),
        ("a ||\n  b\tc", "line 2, column 3 (offset 7)", "space"),
        ("a||\x07", "column 4 (offset 3)", "control character"),
    ],
)
def test_a_tag_that_no_message_can_have_is_refused_with_its_place(text: str, place: str, why: str) -> None:
    error = refused("tag", text)
    assert place in str(error)
    assert why in str(error)
    assert "a || b" in error.action


def test_the_number_of_tags_and_the_length_of_an_expression_are_bounded() -> None:
    wanted = [str(number) for number in range(tag.TAGS_MAX)]
    assert len(filters.make("tag", "||".join(wanted)).hashes or ()) == tag.TAGS_MAX
    assert "257 tags" in str(refused("tag", "||".join([*wanted, "x"])))
    assert f"{TEXT_BYTES_MAX + 1} bytes" in str(refused("tag", "a" * (TEXT_BYTES_MAX + 1)))
    assert filters.make("tag", "é" * (TAG_BYTES_MAX // 2)).matches(stored("é" * (TAG_BYTES_MAX // 2)))


@pytest.mark.mechanism("S0.37")
def test_the_index_stage_knows_the_hashes_of_its_tags_and_no_others() -> None:
    made = filters.make("tag", "a || b")
    assert made.hashes == frozenset({tag_hash("a"), tag_hash("b")})
    assert tag_hash("") not in (made.hashes or ())


def test_twins_of_one_hash_are_distinguished_by_their_text() -> None:
    """ "Aa" and "BB" are twins in the reference's hash; here the text decides whatever the hash says."""
    made = filters.make("tag", "Aa")
    assert made.matches(stored("Aa"))
    assert not made.matches(stored("BB"))


def test_a_tag_beyond_the_basic_plane_is_compared_whole() -> None:
    made = filters.make("tag", "🚀 || x")
    assert made.matches(stored("🚀"))
    assert not made.matches(stored("🚁"))


@pytest.mark.mechanism("S2.44")
@pytest.mark.slow
@given(
    st.lists(
        st.text(st.characters(exclude_characters="|", exclude_categories=("Cs", "Cc", "Z")), min_size=1, max_size=9),
        min_size=1,
    )
)
def test_a_list_matches_its_tags_and_nothing_else(tags: list[str]) -> None:
    made = filters.make("tag", "||".join(tags))
    if made.everything:
        assert set(tags) == {"*"}
        return
    assert all(made.matches(stored(one)) and tag_hash(one) in (made.hashes or ()) for one in tags)
    assert not made.matches(stored("".join(tags) + "."))
    assert filters.make("tag", made.text).same(made)


def test_no_kind_is_every_message() -> None:
    assert filters.make("", "") is filters.EVERYTHING
    assert filters.make("tag", "*").same(filters.EVERYTHING)


@pytest.mark.mechanism("S2.33")
def test_a_filter_is_made_once_for_each_text() -> None:
    assert filters.make("sql92", "made_once = 1") is filters.make("sql92", "made_once = 1")
    assert filters.make("sql92", "a = 1") != filters.make("tag", "a")


def test_a_refused_filter_is_remembered_and_raised_again() -> None:
    """A caller that catches the refusal sets its field to the one of its request: the next caller must not see that."""
    first, second = refused("sql92", "a ="), refused("sql92", "a =")
    assert first is not second
    first.field = "elsewhere"
    assert refused("sql92", "a =").field == "filter.sql92"


@pytest.mark.parametrize("kind", ["tag", "sql92"])
def test_a_text_that_is_too_long_takes_no_place_in_the_cache(kind: str) -> None:
    before = filters._made.cache_info().currsize
    assert f"{TEXT_BYTES_MAX + 2} bytes" in str(refused(kind, "a" * TEXT_BYTES_MAX + "é"))
    assert filters._made.cache_info().currsize == before


def test_a_remembered_refusal_keeps_no_frame_of_the_parser() -> None:
    refused("sql92", "a = 1 kept")
    known = filters._made("sql92", "a = 1 kept")
    assert isinstance(known, Refused)
    assert (known.__traceback__, known.__context__) == (None, None)


def test_filters_that_say_the_same_are_the_same_however_they_are_written() -> None:
    made = filters.make("sql92", "a IN ('x', 'y')  AND  name > 5")
    assert made.same(filters.make("sql92", "a in('x','y')and name>5 -- of us"))
    assert not made.same(filters.make("sql92", "a IN ('x', 'y') AND NAME > 5"))
    assert not made.same(filters.make("sql92", "a IN ('x', 'Y') AND name > 5"))
    assert not made.same(filters.make("tag", "a"))


def test_a_filter_says_what_it_is() -> None:
    assert [str(filters.make(*asked)) for asked in (("tag", "b||a"), ("sql92", "a = 1"), ("", ""))] == [
        "tag 'a || b'",
        "sql92 'a = 1'",
        "every message",
    ]


def test_sql_sees_properties_the_tag_and_the_keys() -> None:
    data = stored("blue", ("k1", "k2"), size="5", TAGS="mine", empty="")
    assert filters.visible(data) == {"TAGS": "blue", "KEYS": "k1 k2", "size": "5", "empty": ""}
    assert filters.visible(stored(KEYS="mine", TAGS="mine")) == {}
    assert filters.make("sql92", "TAGS = 'blue' AND KEYS CONTAINS 'k2' AND size > 4").matches(data)
    assert filters.make("sql92", "TAGS IS NULL").matches(stored())


@pytest.mark.slow
@given(
    st.text(max_size=5),
    st.lists(st.text(min_size=1, max_size=5), max_size=4),
    st.dictionaries(st.text(min_size=1, max_size=4), st.text(max_size=200), max_size=4),
)
def test_sql_sees_the_properties_the_tag_and_the_keys_of_a_message(
    tag: str, keys: list[str], properties: dict[str, str]
) -> None:
    seen = filters.visible(stored(tag, tuple(keys)) + pb.Message(properties=properties).SerializeToString())
    system = ({"TAGS": tag} if tag else {}) | ({"KEYS": " ".join(keys)} if keys else {})
    assert seen == {name: text for name, text in properties.items() if name not in ("TAGS", "KEYS")} | system


@pytest.mark.parametrize(
    "entry",
    [
        {"a": "b"},
        {"": "b"},
        {"a": ""},
        {"k" * 127 + "\x12": "v" * 17},
        {"k" * 127: "v" * 127},
        {"k" * 128: "v" * 128},
        {"\n": "\x12\x12"},
        {"k": "v" * 20_000},
    ],
)
def test_an_entry_of_a_map_is_read_whatever_its_lengths(entry: dict[str, str]) -> None:
    assert fields.properties(pb.Message(properties=entry).SerializeToString()) == entry


def test_an_entry_of_a_map_that_is_written_in_another_way_is_read_too() -> None:
    """Fields in any order, repeated, unknown ones among them: all of this is the same language on the wire."""
    key, value, other = b"\x0a\x01a", b"\x12\x01b", b"\x1a\x01x"
    assert fields.pair(value + key) == ("a", "b")
    assert fields.pair(key + value + other) == ("a", "b")
    assert fields.pair(key + value + b"\x0a\x01c") == ("c", "b")
    assert fields.pair(b"") == ("", "")
