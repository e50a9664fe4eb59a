"""The hashes of a Send, Stage or Settle: the protocols send texts, the store finds messages by hashes of them.

Runs on the event loop, so that hashing overlaps with the writer's fsync.
"""

import functools
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from popmq_server.contract.commands import NewMessage, Send, Settle, Stage
from popmq_server.contract.commands.messages import Entries
from popmq_server.values.message import TAG_BYTES_MAX
from popmq_server.values.outgoing import (
    NO_TAG,
    Outgoing,
    name_hash,
    name_hashes,
    tag_hash,
)

#: Fewer messages are hashed one by one: it costs less.
_BATCH_MIN = 4
#: Tags are few. Long ones, which only the older protocol allows, would fill the cache.
_short_tag_hash = functools.lru_cache(maxsize=4096)(tag_hash)


def with_hashes(command: Send | Stage | Settle) -> Send | Stage | Settle:
    """Returns the command with the messages in the form that the store takes."""
    if isinstance(command, Settle):
        return replace(command, sends=tuple([cast(Send, with_hashes(each)) for each in command.sends]))
    given = command.entries
    if len(given) == 1 and type(given[0]) is NewMessage:
        entries: Entries = (_hashed(given[0]),)
    elif len(given) < _BATCH_MIN:
        entries = tuple([_hashed(entry) if isinstance(entry, NewMessage) else entry for entry in given])
    elif {*map(type, given)} == {NewMessage}:
        entries = _all_hashed(cast(Sequence[NewMessage], given))
    else:
        made = iter(_all_hashed([entry for entry in given if isinstance(entry, NewMessage)]))
        entries = tuple(next(made) if isinstance(entry, NewMessage) else entry for entry in given)
    if type(command) is Send:  # in a third of the time of `replace`
        once = command.producer_id, command.request_number
        return Send(command.topic, entries, *once, command.bytes, command.types)
    return replace(command, entries=entries)


def _all_hashed(messages: Sequence[NewMessage]) -> tuple[Outgoing, ...]:
    """Hashes all messages at once if none has keys: a call for each message costs as much as its hash."""
    data, tags, ids, keys, extras, _ = zip(*messages, strict=True) if messages else [()] * 6
    if any(keys):
        return tuple([_hashed(message) for message in messages])
    hashes = {tag: _tag_hash(tag) for tag in {*tags}}
    return tuple(map(Outgoing, data, [hashes[tag] for tag in tags], zip(name_hashes(ids)), ids, extras))


def _hashed(message: NewMessage) -> Outgoing:
    data, tag, message_id, keys, extra, _ = message
    names = (name_hash(message_id), *map(name_hash, keys)) if keys else (name_hash(message_id),)
    return Outgoing(data, _tag_hash(tag) if tag else NO_TAG, names, message_id, extra)


def _tag_hash(tag: str) -> bytes:
    return _short_tag_hash(tag) if len(tag) <= TAG_BYTES_MAX else tag_hash(tag)
