"""The engine adds the hashes to what the protocols send: by the batch as for each message on its own."""

import random

import pytest

from popmq_server.contract.commands import NewMessage, Send
from popmq_server.embedded.loop.hashes import with_hashes
from popmq_server.errors import Refused, invalid
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8, tag_hash

TAGS = ["", "", "red", "blue", "ü" * 40, "x" * 200]


def drawn(chance: random.Random, keyed: float) -> NewMessage:
    keys = tuple(f"key-{number}" for number in range(2)) if chance.random() < keyed else ()
    extra = Extra("group") if chance.random() < 0.2 else None
    return NewMessage(chance.randbytes(8), chance.choice(TAGS), f"m-{chance.random()}", keys, extra)


def hashed(message: NewMessage) -> Outgoing:
    names = tuple(map(hash8, (message.message_id, *message.keys)))
    return Outgoing(message.data, tag_hash(message.tag), names, message.message_id, message.extra)


@pytest.mark.parametrize("keyed", [0.0, 0.3])
@pytest.mark.parametrize("refused", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("count", [1, 3, 4, 50])
def test_each_message_gets_the_hashes_of_its_texts_and_keeps_its_place(
    count: int, refused: float, keyed: float
) -> None:
    chance, why = random.Random(count), invalid("no", field="body")
    given = tuple(why if chance.random() < refused else drawn(chance, keyed) for _ in range(count))
    sent = with_hashes(Send("t", given, bytes=7))
    assert sent == Send("t", tuple(one if isinstance(one, Refused) else hashed(one) for one in given), bytes=7)
    assert with_hashes(sent) == sent, "the engine's own messages stay as they are"
