# Written by sdk/twin.py from popmq/_async/calls/groups.py: change that one.
"""Calls of groups, and of the message groups of FIFO topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from popmq._calls import admin_calls
from popmq._runtime.later import Later
from popmq._sync.client_parts import Namespace
from popmq.duration import Duration, seconds_of, seconds_or_none
from popmq.topic import DEFAULT_EXPIRY_S, FairKeys, Group, Start, Subscription

if TYPE_CHECKING:
    from popmq._calls import subscription_calls
    from popmq.stats import MessageGroups
else:
    subscription_calls = Later("popmq._calls.subscription_calls")


class GroupCalls(Namespace):
    """Groups, and how each reads its topics.

    Creating what exists with the same settings succeeds; with other settings it raises AlreadyExists.
    """

    def create(
        self,
        name: str,
        max_attempts: int = 17,
        backoff: Duration | Sequence[Duration] = (),
        invisible: Duration = 60.0,
        share_number: int = 0,
        start: Start = "earliest",
        exclusive_owner: bool = False,
        fifo: bool = False,
        in_flight_max: int = 10_000,
        stop_on_failure: bool = False,
        lite_exclusive: bool = False,
        consume_enable: bool = True,
        subscription_expiry: Duration = DEFAULT_EXPIRY_S,
        snoozes_max: int = 1_000,
        dead_letter_expired: bool = False,
        results_keep: Duration = 0.0,
        fair_keys: FairKeys | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Group:
        """Creates a group. `backoff`: delays before attempt 2, 3, …, or one for all; empty: 10 s, 30 s, 1 min … 2 h.

        `invisible`: the lease of a pop that names no length. `share_number` n ≥ 1: 1 + n clients share each queue.
        `start`: where the group begins in a topic, fixed when it first names the topic. `in_flight_max`: the maximum of
        leased messages in one queue. `fifo`, `stop_on_failure`, `lite_exclusive`, `consume_enable`,
        `subscription_expiry`, `snoozes_max`, `dead_letter_expired`, `results_keep`: see Group. `fair_keys`: turns by
        key, see FairKeys.
        Raises AlreadyExists, InvalidField, Unsupported.
        """
        group = Group(
            name,
            max_attempts,
            admin_calls.delays_of(backoff),
            seconds_of(invisible, "invisible"),
            share_number,
            start,
            exclusive_owner,
            fifo=fifo,
            in_flight_max=in_flight_max,
            stop_on_failure=stop_on_failure,
            lite_exclusive=lite_exclusive,
            consume_enable=consume_enable,
            subscription_expiry=seconds_of(subscription_expiry, "subscription_expiry"),
            snoozes_max=snoozes_max,
            dead_letter_expired=dead_letter_expired,
            results_keep=seconds_of(results_keep, "results_keep"),
            fair_keys=fair_keys,
        )
        return self._wire.run(admin_calls.create_group(group), timeout=timeout)

    def get(self, name: str, *, timeout: Duration | None = None) -> Group:
        """One group. Raises GroupNotFound."""
        return self._wire.run(admin_calls.get_group(name), timeout=timeout)

    def update(
        self,
        name: str,
        max_attempts: int | None = None,
        backoff: Duration | Sequence[Duration] | None = None,
        invisible: Duration | None = None,
        share_number: int | None = None,
        start: Start | None = None,
        exclusive_owner: bool | None = None,
        fifo: bool | None = None,
        in_flight_max: int | None = None,
        stop_on_failure: bool | None = None,
        lite_exclusive: bool | None = None,
        consume_enable: bool | None = None,
        subscription_expiry: Duration | None = None,
        snoozes_max: int | None = None,
        dead_letter_expired: bool | None = None,
        results_keep: Duration | None = None,
        fair_keys: FairKeys | Literal[False] | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Group:
        """Changes what is given; `results_keep` 0 also drops what is kept, `fair_keys` False turns them off.

        Raises GroupNotFound, InvalidField.
        """
        changes = {
            "max_attempts": max_attempts,
            "backoff": None if backoff is None else admin_calls.delays_of(backoff),
            "invisible": seconds_or_none(invisible, "invisible"),
            "share_number": share_number,
            "start": start,
            "exclusive_owner": exclusive_owner,
            "fifo": fifo,
            "in_flight_max": in_flight_max,
            "stop_on_failure": stop_on_failure,
            "lite_exclusive": lite_exclusive,
            "consume_enable": consume_enable,
            "subscription_expiry": seconds_or_none(subscription_expiry, "subscription_expiry"),
            "snoozes_max": snoozes_max,
            "dead_letter_expired": dead_letter_expired,
            "results_keep": seconds_or_none(results_keep, "results_keep"),
            "fair_keys": fair_keys,
        }
        group = admin_calls.changed_group(self.get(name, timeout=timeout), changes)
        return self._wire.run(admin_calls.update_group(group), timeout=timeout)

    def delete(self, name: str, *, timeout: Duration | None = None) -> None:
        """Deletes the group, its positions, leases, retries and dead letters. Raises GroupNotFound."""
        self._wire.run(admin_calls.delete_group(name), timeout=timeout)

    def subscriptions(self, group: str, *, timeout: Duration | None = None) -> list[Subscription]:
        """How the group reads each topic that it has named: filter and consume mode. Raises GroupNotFound."""
        return self._wire.run(admin_calls.subscriptions(group), timeout=timeout)

    def set_filter(
        self, topic: str, group: str, *, tag: str | None = None, sql: str | None = None, timeout: Duration | None = None
    ) -> Subscription:
        """Replaces the group's filter in the topic, from the next pop on, retries included; without both: no filter.

        Raises TopicNotFound, GroupNotFound, InvalidFilter (its message shows the place), InvalidField.
        """
        return self._wire.run(subscription_calls.set_filter(topic, group, tag, sql), timeout=timeout)

    def set_consume_mode(
        self,
        topic: str,
        group: str,
        mode: str,
        share_number: int = 0,
        start: Start | None = None,
        *,
        timeout: Duration | None = None,
    ) -> Subscription:
        """Switches a group in a topic between "POP" and "PULL" while consumers run.

        Nothing is lost, and no acked message is delivered again. `share_number` 0: the group's. `start`: where a group
        begins that is new in the topic; InvalidField for a group that has a position there.
        Raises TopicNotFound, GroupNotFound, InvalidField.
        """
        call = subscription_calls.set_consume_mode(topic, group, mode, share_number, start)
        switched = self._wire.run(call, timeout=timeout)
        if switched is None and start is not None:
            at = None if isinstance(start, str) else start
            rows = self._wire.run(subscription_calls.query_offsets(topic, group, at), timeout=timeout)
            subscription_calls.check_begun(topic, group, rows, start)
        if switched is None:
            return self.set_consume_mode(topic, group, mode, share_number, timeout=timeout)
        return switched

    def list(self, *, timeout: Duration | None = None) -> list[Group]:
        """All groups, by name."""
        return self._wire.run(admin_calls.list_groups(), timeout=timeout)


class MessageGroupCalls(Namespace):
    """Message groups of FIFO topics: which wait, are locked or stopped."""

    def resume(
        self, topic: str, group: str, message_group: str, dead_letter: bool = False, *, timeout: Duration | None = None
    ) -> None:
        """Lets a stopped message group continue: its head is tried again, or with `dead_letter` is a dead letter.

        Raises MessageNotFound when it is not stopped; TopicNotFound, GroupNotFound, InvalidField.
        """
        self._wire.run(
            subscription_calls.resume_message_group(topic, group, message_group, dead_letter), timeout=timeout
        )

    def list(
        self,
        topic: str,
        group: str,
        max_message_groups: int = 100,
        stopped_only: bool = False,
        *,
        timeout: Duration | None = None,
    ) -> MessageGroups:
        """Message groups of a FIFO topic that wait, are locked or stopped. Raises TopicNotFound, GroupNotFound."""
        return self._wire.run(
            subscription_calls.list_message_groups(topic, group, max_message_groups, stopped_only), timeout=timeout
        )
