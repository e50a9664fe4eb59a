"""Expiry of idle subscriptions: without a limit, a subscription without readers would keep its messages forever.

    read ───── no reads ───────▶ idle ─────── warned ──── `ahead` ──▶ removed: subscription_expiry_ms after the read
      ▲      IDLE_AFTER_MS        │ idle_ms   │ warned_ms           its unread messages: TopicStat.abandoned
      └──── any read, heartbeat, change of its offsets or settings ◀──┘

A subscription is a group in a topic that it has named. It is in use while a client reads it (State.last_read), and
while it has leases, retries, backoffs, waiting messages, sealed sets of owners or a sweep. After the removal the topic
no longer knows the group: retention does not wait for it, and if it returns, it starts as a new group.

The last read is in memory, and `idle_ms` is stored only once a subscription is idle: reading costs no write. The
times that a restart forgets can only delay the expiry, never advance it. A subscription expires only after a warning
`ahead` of time, and never in the first hour after a start: its consumers must have time to return.

See docs/decisions/0031-subscription-expiry.md.
"""

from collections import deque

from popmq_server.embedded.operations import Attend
from popmq_server.embedded.rules.delivery import deadletter
from popmq_server.embedded.rules.delivery.subscription import note_use
from popmq_server.embedded.rules.topics import quotas, readers, registry
from popmq_server.embedded.rules.topics.removal import drop_range
from popmq_server.embedded.rules.topics.walks import TopicRound
from popmq_server.embedded.state import owners, topic_counts
from popmq_server.embedded.state.events import Event
from popmq_server.embedded.state.tx import Tx
from popmq_server.embedded.store.keys import STAT_KEY
from popmq_server.values.ids import GroupId, GroupTopic, TopicId
from popmq_server.values.records import (
    RETRY_QUEUE,
    Group,
    HeldNumbers,
    Stat,
    Subscription,
    Topic,
)

#: How long before the expiry the warning comes: a week, or a quarter of a short expiry.
AHEAD_MS_MAX = 7 * 86_400_000
#: Interval between two rounds over all subscriptions.
LOOK_EVERY_MS = 600_000
#: A subscription read within this time is in use; nothing is written for it.
IDLE_AFTER_MS = 3_600_000
#: No subscription expires this soon after a start.
GRACE_MS = 3_600_000
#: Subscriptions that one piece looks at, and subscriptions of lite topics that one piece removes.
LOOKS_MAX, LITES_MAX = 500, 200
#: The cost of a removal, in looks.
REMOVAL_COST = 9


def ahead_ms(expiry_ms: int) -> int:
    """How long before the expiry of a subscription the warning comes."""
    return min(AHEAD_MS_MAX, expiry_ms // 4)


def expires_ms(group: Group, subscription: Subscription, read_ms: int) -> int:
    """When a subscription expires unless it is read before; 0 = never, or it is in use."""
    if not subscription.idle_ms or read_ms > subscription.idle_ms or not group.subscription_expiry_ms:
        return 0
    ahead = ahead_ms(group.subscription_expiry_ms)
    warned_ms = subscription.warned_ms or subscription.idle_ms + group.subscription_expiry_ms - ahead
    return max(subscription.idle_ms + group.subscription_expiry_ms, warned_ms + ahead)


def attend(tx: Tx, command: Attend) -> None:
    """Notes that live members of a group may read these topics."""
    group = readers.group(tx, command.group)
    for topic in registry.topics(tx, command.topics):
        if group is not None and (group.group_id, topic.topic_id) in tx.state.stat:
            note_use(tx, (group.group_id, topic.topic_id))


def in_use(tx: Tx, where: GroupTopic) -> bool:
    """Whether a subscription has leases, retries, backoffs, waiting messages, sealed sets of owners or a sweep."""
    stat = tx.state.stat.get(where, Stat())
    held = any(tx.state.held.get(where, HeldNumbers())) or where in tx.state.sweeps
    return bool(stat.retry or stat.waiting or held or owners.any_tokens(tx, where))


class Expiry:
    """Checks all subscriptions in rounds. A job of housekeeping.py."""

    def __init__(self, now_ms: int) -> None:
        self._started_ms = now_ms
        self._look_ms = now_ms
        #: The walk over the topics. Of its current piece: the topics that are left, the current topic, its groups left.
        self._walk = TopicRound()
        self._round: deque[int] = deque()
        self._topic_id = 0
        self._groups: deque[int] = deque()
        #: When a look last saw a subscription in use: looks of this round, and those of the round before.
        self._used: dict[GroupTopic, int] = {}
        self._used_before: dict[GroupTopic, int] = {}
        #: By topic, the groups whose subscription expired in this piece.
        self._expired: dict[TopicId, set[GroupId]] = {}
        #: Looks left in this piece.
        self._left = 0
        #: For each subscription of a LITE topic under removal: its remaining lite topics.
        self._lites: dict[GroupTopic, deque[TopicId]] = {}

    def run(self, tx: Tx) -> bool:
        """Runs one piece; returns whether there is more to do now."""
        self._expired.clear()
        # The times of last uses stay as they are: a later one only delays an expiry.
        tx.state.undo.save(self, "_look_ms", "_round", "_topic_id", "_groups")
        self._round, self._groups = deque(self._round), deque(self._groups)
        more = self._piece(tx)
        for topic_id, expired in self._expired.items():
            readers.leave_together(tx, topic_id, expired)
        return more

    def _piece(self, tx: Tx) -> bool:
        if not self._round and not self._groups and not self._walk.more:
            if tx.now_ms < self._look_ms:
                return False
            self._round = deque(topic.topic_id for topic in self._walk.piece(tx))
            self._used_before, self._used = self._used, {}
            self._look_ms = tx.now_ms + LOOK_EVERY_MS
        self._left = LOOKS_MAX
        while self._left > 0:
            self._left -= 1
            if not self._groups:
                if not self._round and self._walk.more:
                    self._round.extend(topic.topic_id for topic in self._walk.piece(tx))
                if not self._round:
                    return False
                self._topic_id = self._round.popleft()
                self._groups.extend(tx.state.topic_groups.get(self._topic_id, ()))
                continue
            topic, group = tx.state.topics.get(self._topic_id), tx.state.groups.get(self._groups.popleft())
            if topic is not None and group is not None and self._look_at(tx, group, topic):
                self._groups.appendleft(group.group_id)
                return True
        return True

    def _look_at(self, tx: Tx, group: Group, topic: Topic) -> bool:
        """Updates one subscription; returns whether its removal has to continue."""
        where = (group.group_id, topic.topic_id)
        now = tx.state.subscriptions.get(where, Subscription())
        if where in self._used_before:
            self._used[where] = self._used_before.pop(where)
        used_ms = max(tx.state.last_read.get(where, 0), self._used.get(where, 0))
        if in_use(tx, where) or not (used_ms or now.idle_ms):  # not seen since the start: counts as used now
            used_ms = self._used[where] = tx.now_ms
        if used_ms > now.idle_ms:
            after = now._replace(idle_ms=used_ms if tx.now_ms - used_ms >= IDLE_AFTER_MS else 0, warned_ms=0)
        else:
            after = self._warned(tx, group, topic, now)
        if after != now:
            readers.note_idle(tx, where, after.idle_ms, after.warned_ms)
        due_ms = expires_ms(group, after, used_ms)
        if after.warned_ms and due_ms and due_ms <= tx.now_ms and tx.now_ms - self._started_ms >= GRACE_MS:
            return self._remove(tx, group, topic)
        return False

    def _warned(self, tx: Tx, group: Group, topic: Topic, now: Subscription) -> Subscription:
        """Warns before a subscription expires; drops the warning if a new setting leaves it more time."""
        expiry = group.subscription_expiry_ms
        if not expiry or tx.now_ms - now.idle_ms < expiry - ahead_ms(expiry):
            return now._replace(warned_ms=0)
        if now.warned_ms:
            return now
        warned = now._replace(warned_ms=tx.now_ms)
        left = unread(tx, group, topic)
        hours = (expires_ms(group, warned, 0) - tx.now_ms) // 3_600_000
        text = (
            f"group {group.name!r} has not read topic {topic.name!r} for {(tx.now_ms - now.idle_ms) // 3_600_000} h: "
            f"its subscription expires in {hours} h, and it loses {left} messages, unless it reads again "
            f"(or: popmq group update {group.name} --subscription-expiry 0s)"
        )
        tx.tell(Event("subscription_expiring", group.name, topic.name, left, text))
        return warned

    def _remove(self, tx: Tx, group: Group, topic: Topic) -> bool:
        """Removes one piece; returns whether there is more. A LITE topic's lite topics go first."""
        where = (group.group_id, topic.topic_id)
        readers.group(tx, group.name)  # counts what retention dropped before the counters go
        if topic.type == "LITE":
            left = self._lites.pop(where, None) or _lites_of(tx, group, topic)
            for _ in range(min(LITES_MAX, len(left))):
                self._forget(tx, (group.group_id, left.popleft()))
            # Looked up again at the end: the lite topics of an aborted piece are still there.
            if left or _lites_of(tx, group, topic):
                self._lites[where] = left
                return True
        lost = unread(tx, group, topic)
        self._forget(tx, where)
        self._left -= REMOVAL_COST
        self._used.pop(where, None)
        text = f"group {group.name!r}, topic {topic.name!r}: the subscription expired; {lost} messages were not read"
        tx.tell(Event("subscription_expired", group.name, topic.name, lost, text))
        return False

    def _forget(self, tx: Tx, where: GroupTopic) -> None:
        """Removes the group's position in the topic. The subscription is not in use, so there are only counters."""
        state, topic = tx.state, tx.state.topics.get(where[1])
        if topic is None or where not in state.stat:
            return
        if topic.type != "LITE" or topic.parent_id:
            lost = unread(tx, state.groups[where[0]], topic._replace(type="NORMAL"))
            topic_counts.add(tx, topic.topic_id, abandoned=lost)
            readers.count_unread(tx, where, -lost)
        state.forget_subscription(where, (*range(topic.queues), RETRY_QUEUE))
        quotas.forget_group(tx, *where)
        drop_range(tx, "begin", STAT_KEY.pack(*where), topic.queues + 1)
        self._expired.setdefault(topic.topic_id, set()).add(where[0])


def _lites_of(tx: Tx, group: Group, topic: Topic) -> deque[TopicId]:
    """The lite topics that a group has a position in."""
    ids = (lite for (parent, _), lite in tx.state.lite_ids.items() if parent == topic.topic_id)
    return deque(lite for lite in ids if (group.group_id, lite) in tx.state.stat)


def unread(tx: Tx, group: Group, topic: Topic) -> int:
    """The number of messages that a group has not read yet."""
    where = (group.group_id, topic.topic_id)
    if topic.type == "LITE":
        return tx.state.unread.get(where, 0)
    return tx.state.total.get(topic.topic_id, 0) - tx.state.passed.get(where, 0) - deadletter.gone_ahead(tx, where)
