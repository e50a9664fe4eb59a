"""Owners and sealed tokens: leases that survive a restart of their reader.

    own   G + hash16(owner) → generation, lease until, acked epoch, last seen       one key per owner in `due`
    tok   G + T + hash16(owner, epoch, part, chunk) → ck_id or none, count, end

               Pop with a new token                 AckUpTo(epoch)
    ready ─────────────────────────────▶  BOUND  ──────────────────────▶ done
                                          ▲    │                          ▲
        the owner renews: take back       │    │ the owner's lease ends   │ AckUpTo, late
                                          │    ▼                          │
                                         RELEASED ────────────────────────┘
                                            │  in the retry topic, tied to its CheckPoint
                                            ▼
                                          TORN: another client popped it

The CheckPoint of a token has its bitmap under due = NEVER: its deadline is the owner's, and RenewOwner moves one key.
A CheckPoint is released whole and taken back whole, so the number of one retry entry gives those of all members.
Guarantees to readers:

    seal     a set is durable before it is returned, an empty one too: a repeated read never grows
    replay   the same members without the done ones, in the same order; attempts do not increase; no dead letters
    end      true only when every queue and the retry topic had nothing more, or the share was full
    fence    AttachOwner raises the generation; every call of an older one is refused with FENCED
    finish   AckUpTo is idempotent, also late; a Pop of a finished epoch is refused with EPOCH_ALREADY_ACKED
    torn     after the lease ended other clients may pop members; the next replay returns their number (`torn`)

See docs/decisions/0020-owners.md.
"""

from popmq_server.contract.commands import (
    AckedUpTo,
    AckUpTo,
    Attached,
    AttachOwner,
    OwnerRenewed,
    ReleaseOwner,
    RenewOwner,
)
from popmq_server.embedded.invariants.broken import broken
from popmq_server.embedded.rules.delivery import lease_history
from popmq_server.embedded.rules.delivery.fair import choice
from popmq_server.embedded.rules.delivery.retry import take_back, to_retry
from popmq_server.embedded.rules.delivery.subscription import bind, refuse_lite
from popmq_server.embedded.rules.topics import consumer_groups, readers, registry
from popmq_server.embedded.state import leases, owners
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.checkpoint import CheckPoint, Lease
from popmq_server.embedded.store.keys import hash16
from popmq_server.errors import (
    Refused,
    group_not_found,
    invalid,
    topic_not_found,
)
from popmq_server.values.ids import TopicId
from popmq_server.values.reach import EVERYWHERE, Reach, covers
from popmq_server.values.records import (
    Group,
    Owner,
    Token,
    Topic,
)


def covers_owner(tx: Tx, reach: Reach, group: Group, owner: Owner) -> bool:
    """Whether the caller may receive every topic of an owner: its commands concern the messages of all of them."""
    if reach == EVERYWHERE:
        return True
    topics = (tx.state.topics.get(TopicId(topic_id)) for topic_id in owner.topics)
    return all(covers(reach, topic.name, group.name) for topic in topics if topic is not None)


def _check_reach(tx: Tx, reach: Reach, group: Group, owner: Owner) -> None:
    """Raises Refused PERMISSION_DENIED."""
    if not covers_owner(tx, reach, group, owner):
        raise Refused(
            "PERMISSION_DENIED",
            f"owner {owner.name!r} of group {group.name!r} reads topics that the access key does not allow",
            field="owner",
            action="use an owner of your own, or a key that may receive all topics of this one",
        )


def find_owner(tx: Tx, group_name: str, name: str, generation: int, reach: Reach = EVERYWHERE) -> tuple[Group, Owner]:
    """The group and its owner, or Refused: FENCED for an older generation. `generation` 0: an operator's request."""
    group = readers.group(tx, group_name)
    if group is None:
        raise group_not_found(group_name)
    owner = tx.state.owners.get((group.group_id, hash16(name)))
    if owner is None:
        raise Refused(
            "OWNER_NOT_FOUND",
            f"group {group_name!r} has no owner {name!r}",
            field="owner",
            action="attach it first (in Python: client.owners.attach)",
        )
    if owner.name != name:
        broken("owner_has_its_name", owner=owner.owner_id, name=owner.name)
    _check_reach(tx, reach, group, owner)
    if generation and generation < owner.generation:
        raise Refused(
            "FENCED",
            f"owner {name!r} has generation {owner.generation}, this request has {generation}",
            field="generation",
            action="stop: another process has taken over",
        )
    if generation > owner.generation:
        raise invalid(
            f"owner {name!r} has generation {owner.generation}, not yet {generation}",
            field="generation",
            action="use the generation of the last attach (in Python: client.owners.attach)",
        )
    return group, owner


def attach(tx: Tx, command: AttachOwner) -> Attached:
    """Creates or takes over an owner; requests of older generations are fenced from now on.

    Also fixes the group's start position: a Spark query names its topic before it reads, and must get the messages
    that are sent in between.
    """
    topic = registry.topic(tx, command.topic) if command.topic else None
    if command.topic and topic is None:
        raise topic_not_found(command.topic)
    if topic is not None:
        refuse_lite(topic)
    group = readers.group(tx, command.group)
    if group is None and not command.create_group:
        raise group_not_found(command.group)
    if group is None:
        group = _create_group(tx, command)
    choice.refuse_owners(tx, group, topic)
    key = hash16(command.owner)
    owner = tx.state.owners.get((group.group_id, key))
    if owner is not None:
        _check_reach(tx, command.reach, group, owner)
    if topic is not None:
        bind(tx, group, topic, command.start)
    if owner is None:
        owner = Owner(
            owner_id=tx.new_id(),
            group_id=group.group_id,
            key=key,
            name=command.owner,
            generation=0,
            lease_until_ms=0,
            acked_epoch=0,
            last_seen_ms=0,
            released=False,
        )
        owners.add(tx, owner)
    owner = owners.put(
        tx,
        owner._replace(
            generation=owner.generation + 1,
            lease_until_ms=tx.now_ms + command.lease_ms,
            last_seen_ms=tx.now_ms,
            released=False,
            topics=_with_topic(tx, owner, topic),
        ),
    )
    return Attached(owner.generation, owner.acked_epoch, topic.queues if topic else 0)


def _create_group(tx: Tx, command: AttachOwner) -> Group:
    """Creates the group with default settings. Raises Refused PERMISSION_DENIED."""
    if not command.may_create:
        raise Refused(
            "PERMISSION_DENIED",
            f"the access key does not allow to create group {command.group!r}",
            field="group",
            action=f"create it with a key that has admin, or name it in what the access keys allow this one: "
            f'"receive:{command.topic or "*"}/{command.group}"',
        )
    return consumer_groups.create_default_group(tx, command.group)


def _with_topic(tx: Tx, owner: Owner, topic: Topic | None) -> tuple[int, ...]:
    """The existing topics of an owner, and one more."""
    known = tuple(topic_id for topic_id in owner.topics if topic_id in tx.state.topics)
    return known if topic is None or topic.topic_id in known else (*known, topic.topic_id)


def renew(tx: Tx, command: RenewOwner) -> OwnerRenewed:
    """Moves the deadline of all bound members. `lapse` soon takes back released members that are not popped.

    Moves one small key, for any number of members: this is why the members of a token have no deadline of their own.
    """
    _, owner = find_owner(tx, command.group, command.owner, command.generation, command.reach)
    owner = owners.put(
        tx, owner._replace(lease_until_ms=tx.now_ms + command.lease_ms, last_seen_ms=tx.now_ms, released=False)
    )
    return OwnerRenewed(
        len(tx.state.owner_tokens.get(owner.owner_id, ())),
        tx.state.owned.get(owner.owner_id, 0),
        owner.lease_until_ms,
    )


def ack_up_to(tx: Tx, command: AckUpTo) -> AckedUpTo:
    """Finishes the tokens of all epochs up to `command.epoch`, late or not. Idempotent.

    Counts their torn members: a reader that got them before its lease expired may not replay a token again.

    Costs a few operations for each CheckPoint, plus one or two for each released message; an owner with a million
    messages in flight has some thousand CheckPoints.
    """
    _, owner = find_owner(tx, command.group, command.owner, command.generation, command.reach)
    topics: dict[str, int] = {}
    finished, torn = [], 0
    for key, token in owners.tokens_of(tx, owner.owner_id):
        if token.epoch > command.epoch:
            continue
        finished.append(key)
        acked, lost = _finish(tx, key, token)
        torn += lost
        if acked and (topic := tx.state.topics.get(key[1])):
            topics[topic.name] = topics.get(topic.name, 0) + acked
    owners.drop_tokens(tx, owner.owner_id, finished)
    owner = owners.put(tx, owner._replace(acked_epoch=max(owner.acked_epoch, command.epoch), last_seen_ms=tx.now_ms))
    return AckedUpTo(sum(topics.values()), owner.acked_epoch, topics, torn)


def _finish(tx: Tx, key: owners.TokenKey, token: Token) -> tuple[int, int]:
    """Acks all members that a token still holds, bound or released; torn members are no longer its own.

    Returns the numbers of both.
    """
    ck = owners.checkpoint_of(tx, key, token)
    if ck is None:
        return 0, 0
    part = tx.state.leases[(ck.ck_id, 0)]
    take_back(tx, ck, part)
    leases.hold(tx, ck, part.undone & ~part.released, -1)
    readers.count(tx, (ck.group_id, ck.topic_id), acked=part.undone.bit_count())
    lease_history.write(tx, ck, part._replace(undone=part.torn), 0, lease_history.ACKED)
    leases.set_part(tx, ck, 0, None)
    return part.undone.bit_count(), part.torn.bit_count()


def release(tx: Tx, command: ReleaseOwner) -> int:
    """Ends the owner's lease now: the revive then releases its members in bounded pieces (not of exclusive groups).

    Operators call this too.
    """
    _, owner = find_owner(tx, command.group, command.owner, command.generation, command.reach)
    held = tx.state.owned.get(owner.owner_id, 0)
    owners.put(tx, owner._replace(lease_until_ms=tx.now_ms, released=False))
    return held


def lapse(tx: Tx, owner_id: int, members_max: int) -> int:
    """Handles an owner's key in `due`; returns the number of members moved, at least 1.

    While the lease lasts: takes back released members that no other client popped. After its end: releases the members
    that the owner holds. OWNER_KEEP_MS after the last request: drops the owner.
    """
    where = tx.state.owner_keys.get(owner_id)
    if where is None:
        leases.forget_owner(tx, owner_id)
        return 1
    owner = tx.state.owners.get(where)
    if owner is None or owner.owner_id != owner_id:
        broken("owner_has_its_key", owner=owner_id, stored=owner and owner.owner_id)
    if owner.lease_until_ms > tx.now_ms:
        moved = _reclaim(tx, owner, members_max)
        owners.put(tx, owner)
        return moved or 1
    if owner.released:
        return _drop(tx, owner, members_max)
    group = tx.state.groups.get(owner.group_id)
    moved, more = 0, False
    if group is not None and not group.exclusive_owner:
        moved, more = _release_members(tx, owner, members_max)
    if not more:
        owners.put(tx, owner._replace(released=True))
    return moved or 1


def _reclaim(tx: Tx, owner: Owner, members_max: int) -> int:
    """Takes back whole CheckPoints until `members_max` is reached; returns the number of members."""
    moved = 0
    for key, token in owners.tokens_of(tx, owner.owner_id):
        ck = owners.checkpoint_of(tx, key, token)
        part = tx.state.leases.get((ck.ck_id, 0)) if ck else None
        if ck is not None and part is not None and part.released and moved < members_max:
            moved += part.released.bit_count()
            bind_again(tx, ck, part)
    return moved


def bind_again(tx: Tx, ck: CheckPoint, part: Lease) -> Lease:
    """Puts the released members of a CheckPoint under its owner's lease again."""
    take_back(tx, ck, part)
    leases.hold(tx, ck, part.released, 1)
    part = part._replace(released=0, released_at=0, released_first=0)
    leases.set_part(tx, ck, 0, part)
    return part


def _release_members(tx: Tx, owner: Owner, members_max: int) -> tuple[int, bool]:
    """Releases whole CheckPoints until `members_max` is reached; (members, whether there are more)."""
    moved = 0
    for key, token in owners.tokens_of(tx, owner.owner_id):
        ck = owners.checkpoint_of(tx, key, token)
        part = tx.state.leases.get((ck.ck_id, 0)) if ck else None
        if ck is None or part is None or not (bits := part.undone & ~part.released):
            continue
        if moved >= members_max:
            return moved, True
        leases.hold(tx, ck, bits, -1)
        first = to_retry(tx, ck, bits, "owner's lease expired", bound=True)
        leases.set_part(tx, ck, 0, part._replace(released=bits, released_first=first, released_at=bits))
        leases.loosen(tx, owner.owner_id, bits.bit_count())
        moved += bits.bit_count()
    return moved, False


def _drop(tx: Tx, owner: Owner, members_max: int) -> int:
    """Removes owner, tokens and CheckPoints in pieces; members still bound (exclusive groups) go to the retry topic.

    The retry entries of released members stay and become ordinary ones, as their CheckPoint does not exist any more.
    """
    moved, gone = 0, list[owners.TokenKey]()
    for key, token in owners.tokens_of(tx, owner.owner_id):
        if moved >= members_max:
            owners.drop_tokens(tx, owner.owner_id, gone)
            return moved
        ck = owners.checkpoint_of(tx, key, token)
        if ck is not None:
            part = tx.state.leases[(ck.ck_id, 0)]
            bits = part.undone & ~part.released
            leases.hold(tx, ck, bits, -1)
            leases.loosen(tx, owner.owner_id, -part.released.bit_count())
            if bits:
                to_retry(tx, ck, bits, "the owner was removed")
            leases.set_part(tx, ck, 0, None)
            moved += bits.bit_count()
        gone.append(key)
    owners.drop_tokens(tx, owner.owner_id, gone)
    owners.forget(tx, owner)
    return moved or 1
