"""Handles of a batch are encoded and decoded together, with the outcome of one by one."""

import random

from popmq_server.values.handles import (
    Handle,
    make_handle,
    make_handles,
    read_handle,
    read_handles,
)
from tests.engine.work import calls


def test_a_batch_has_the_handles_that_each_message_has_alone() -> None:
    chance = random.Random(3)
    for count in (0, 1, 2, 300):
        ck_id, nonce = chance.getrandbits(64), chance.getrandbits(64)
        members = [chance.getrandbits(16) for _ in range(count)]
        texts = [make_handle(ck_id, member, nonce) for member in members]
        assert [handle.decode() for handle in make_handles(ck_id, members, nonce)] == texts
        assert read_handles(texts) == [Handle(ck_id, member, nonce) for member in members]
        assert all(
            read_handle(text) == Handle(ck_id, member, nonce) for text, member in zip(texts, members, strict=True)
        )


def test_one_damaged_handle_of_a_batch_is_noticed_wherever_it_is() -> None:
    good = [handle.decode() for handle in make_handles(7, range(3), 9)]
    damaged = [
        "",
        "x",
        good[0][:-1],
        good[0] + "A",
        "!" * 28,
        good[0][:-4] + "AAA=",
        "é" * 28,
        make_handle(7, 0, 9)[:-2] + "__",
    ]
    damaged.append(("B" if good[0][10] == "A" else "A").join((good[0][:10], good[0][11:])))
    for text in damaged:
        for place in range(3):
            assert read_handles([*good[:place], text, *good[place:]]) is None
    # Characters that moved from one handle to its neighbour leave the text of both together the same.
    assert read_handles([good[0] + good[1][:4], good[1][4:]]) is None


def test_a_handle_of_a_batch_is_within_its_budget_of_calls() -> None:
    few, many = (make_handles(7, range(count), 9) for count in (100, 200))
    assert (calls(lambda: make_handles(7, range(200), 9)) - calls(lambda: make_handles(7, range(100), 9))) / 100 <= 6
    small, large = ([handle.decode() for handle in handles] for handles in (few, many))
    assert (calls(lambda: read_handles(large)) - calls(lambda: read_handles(small))) / 100 <= 6
