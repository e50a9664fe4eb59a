"""Bodies on a page: no body takes much memory or time, whatever a sender has put into it."""

import json
import tracemalloc

import pytest

from popmq_console.views import JSON_BYTES_MAX, TEXT_CHARACTERS, as_json, as_text

NESTED = ("[" + ",".join(["[" * 400 + "]" * 400] * 320) + "]").encode()
LISTS = ("[" + ",".join(["[]"] * 87_000) + "]").encode()
LONG_STRING = json.dumps("x" * (JSON_BYTES_MAX - 2)).encode()


@pytest.mark.parametrize("body", [NESTED, LISTS, LONG_STRING], ids=["nested", "lists", "string"])
def test_json_of_the_greatest_size_takes_less_than_16_mib(body: bytes) -> None:
    assert JSON_BYTES_MAX / 2 < len(body) <= JSON_BYTES_MAX
    tracemalloc.start()
    shown = as_json(body)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(shown) == TEXT_CHARACTERS
    assert peak < 16 << 20


def test_longer_json_is_not_read_and_its_text_is_shown() -> None:
    body = b"[" + b" " * JSON_BYTES_MAX + b"]"
    assert as_json(body) == ""
    assert len(as_text(body)) == TEXT_CHARACTERS


def test_a_text_is_cut_between_two_characters() -> None:
    assert as_text("😀".encode() * (TEXT_CHARACTERS + 1)) == "😀" * TEXT_CHARACTERS
