"""Owners and their tokens: the one module that writes these tables (rules/delivery/owner.py and token_pop.py decide).

    owners, tokens               G, hash of the name → owner; G, T, hash → the sealed set of a token
    owner_keys, owner_tokens     the keys of an owner in the two tables
    owner_count                  G → its owners

The time at which something of an owner is next due is a key in `due`, with the leases.
"""

from collections.abc import Collection, Iterator

from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.state import leases
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint
from popmq_server.embedded.store.keys import STAT_KEY
from popmq_server.values.ids import GroupId, GroupTopic
from popmq_server.values.records import Owner, Token

#: The broker drops an owner, with its tokens, this long after its last request.
OWNER_KEEP_MS = 7 * 24 * 3_600_000

TokenKey = tuple[int, int, bytes]


def add(tx: Tx, owner: Owner) -> None:
    """Makes a new owner known; `put` stores it."""
    if owner.owner_id in tx.state.owner_keys:
        broken("owner_id_new", owner=owner.owner_id)
    tx.state.owner_keys[owner.owner_id] = (owner.group_id, owner.key)
    _count(tx, owner.group_id, 1)


def put(tx: Tx, owner: Owner) -> Owner:
    """Stores an owner and its key in `due`: when its lease ends, when it is dropped, or now, to take members back."""
    before = tx.state.owners.get((owner.group_id, owner.key))
    if before is not None and before.owner_id != owner.owner_id:
        broken("owner_has_its_key", owner=owner.owner_id, stored=before.owner_id)
    if before is not None and owner.generation < before.generation:
        broken("generations_ascend", owner=owner.owner_id, generation=owner.generation, before=before.generation)
    if before is not None and owner.acked_epoch < before.acked_epoch:
        broken("acked_epochs_ascend", owner=owner.owner_id, epoch=owner.acked_epoch, before=before.acked_epoch)
    tx.state.owners[(owner.group_id, owner.key)] = owner
    due_ms = owner.last_seen_ms + OWNER_KEEP_MS if owner.released else owner.lease_until_ms
    if owner.lease_until_ms > tx.now_ms and tx.state.loose.get(owner.owner_id, 0) > 0:
        due_ms = tx.now_ms
    leases.keep_owner(tx, owner.owner_id, due_ms)
    return owner


def open_to_others(tx: Tx, group_id: GroupId) -> None:
    """Schedules the release of messages held by owners whose lease expired while their group was exclusive."""
    for key, owner in list(tx.state.owners.items()):
        if key[0] == group_id and owner.released:
            tx.state.owners[key] = owner._replace(released=False)
            leases.keep_owner(tx, owner.owner_id, owner.lease_until_ms)


def forget(tx: Tx, owner: Owner) -> None:
    """Removes an owner and its lease."""
    tx.state.forget_owner(owner.owner_id)
    tx.state.owners.pop((owner.group_id, owner.key))
    _count(tx, owner.group_id, -1)
    leases.forget_owner(tx, owner.owner_id)


def _count(tx: Tx, group_id: int, change: int) -> None:
    count = tx.state.owner_count.get(group_id, 0) + change
    if count < 0:
        broken("owners_counted", group=group_id, left=count)
    if count:
        tx.state.owner_count[group_id] = count
    else:
        tx.state.owner_count.pop(group_id)


def seal(tx: Tx, key: TokenKey, token: Token) -> None:
    """Stores the sealed set of a new token."""
    if key in tx.state.tokens:
        broken("token_is_sealed_once", owner=token.owner_id, epoch=token.epoch, part=token.part, chunk=token.chunk)
    tx.state.tokens[key] = token
    tx.state.owner_tokens[token.owner_id] = (*tx.state.owner_tokens.get(token.owner_id, ()), key)


def tokens_of(tx: Tx, owner_id: int) -> Iterator[tuple[TokenKey, Token]]:
    """The keys and tokens of an owner, in the order in which they were sealed."""
    for key in tx.state.owner_tokens.get(owner_id, ()):
        token = tx.state.tokens.get(key)
        if token is None:
            broken("owner_has_its_tokens", owner=owner_id, group=key[0], topic=key[1])
        if token.owner_id != owner_id:
            broken("token_has_its_owner", owner=owner_id, stored=token.owner_id, epoch=token.epoch)
        yield key, token


def checkpoint_of(tx: Tx, key: TokenKey, token: Token) -> CheckPoint | None:
    """The CheckPoint of a token; None: its set is empty, or its topic is purged or deleted."""
    if not token.ck_id:
        return None
    ck = tx.state.ck.get(token.ck_id)
    if ck is None:
        if key[0] not in tx.state.groups or key[1] not in tx.state.topics:
            return None
        broken("token_has_its_checkpoint", owner=token.owner_id, epoch=token.epoch, checkpoint=token.ck_id)
    if ck.owner_id != token.owner_id:
        broken("sealed_set_has_its_owner", checkpoint=ck.ck_id, owner=ck.owner_id, token_of=token.owner_id)
    if ck.members != token.members:
        broken("sealed_set_keeps_its_members", checkpoint=ck.ck_id, members=ck.members, sealed=token.members)
    return ck


def drop_tokens(tx: Tx, owner_id: int, gone: Collection[TokenKey]) -> None:
    """Removes tokens of an owner. Their CheckPoints must have ended."""
    for key in gone:
        tx.state.tokens.pop(key)
    if gone:
        left = tuple(key for key in tx.state.owner_tokens.get(owner_id, ()) if key not in gone)
        tx.state.owner_tokens[owner_id] = left


def move_tokens(tx: Tx, old: GroupTopic, new: GroupTopic) -> None:
    """Moves the tokens of a group from a purged topic: each stays sealed, and has no messages."""
    state = tx.state
    for key in _tokens_of(tx, old) if state.owner_count.get(old[0]) else ():
        token, kept = state.tokens[key], (*new, key[2])
        state.tokens[kept] = token._replace(ck_id=0)
        keys = state.owner_tokens.get(token.owner_id, ())
        state.owner_tokens[token.owner_id] = tuple(kept if one == key else one for one in keys)


def any_tokens(tx: Tx, where: GroupTopic) -> bool:
    """Whether owners of a group have tokens in a topic, of messages or of none."""
    if not tx.state.owner_count.get(where[0]):
        return False
    stored = next(tx.kv.scan_keys("tok", STAT_KEY.pack(*where)), None) is not None
    return stored or any(key[:2] == where for key, _ in tx.state.tokens.changed_items())


def _tokens_of(tx: Tx, where: GroupTopic) -> list[TokenKey]:
    """The tokens of a group in a topic: from the store, and from this transaction."""
    stored = ((*where, key[STAT_KEY.size :]) for key, _ in tx.kv.scan("tok", STAT_KEY.pack(*where)))
    made = (key for key, _ in tx.state.tokens.changed_items() if key[:2] == where)
    return [key for key in dict.fromkeys((*stored, *made)) if key in tx.state.tokens]
