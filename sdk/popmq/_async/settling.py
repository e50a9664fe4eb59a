"""Calls that settle deliveries: ack, extend, release, reject, and settle, which sends in the same commit."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from popmq._async.transport.wire import Wire
from popmq._calls import pop_calls
from popmq._calls.pop_calls import all_or_raise
from popmq._runtime.later import Later
from popmq._transport.call import Call
from popmq.duration import Duration

if TYPE_CHECKING:
    from popmq import message as _message
    from popmq._async.consuming.parts import Parts
    from popmq._calls import settle_calls
    from popmq.message import Delivery, Send, SendReceipt
    from popmq.outcome import InvisibleTimeResult, Result
else:
    _message = Later("popmq.message")
    settle_calls = Later("popmq._calls.settle_calls")

#: What names a delivery: itself, or its handle (then the call needs the group, too).
Handle: TypeAlias = "Delivery | str"


class AsyncSettling:
    """How deliveries end, and how long their leases are."""

    _wire: Wire
    _parts: Parts

    async def ack(
        self,
        deliveries: Handle | Iterable[Handle],
        *,
        results: Result | Iterable[Result | None] = (),
        group: str = "",
        timeout: Duration | None = None,
    ) -> None:
        """Acks deliveries: their group does not get them again. Handles that are strings need the `group`.

        `results`: one for each delivery, or None for one without; kept for `result`, in the same commit. Together they
        are those of one request (15 MiB), and the deliveries are of one group, which keeps results.
        Raises HandleLapsed; LeaseLost if it is not known whether it is done; PartlyRefused if some of many are refused;
        InvalidField for results in a group that keeps none, or that are too large: nothing is done then.
        """
        build = pop_calls.ack
        if results:
            deliveries = pop_calls.listed(deliveries)
            given = settle_calls.result_rows(settle_calls.listed_results(results, len(deliveries)))
            group = pop_calls.one_group(deliveries, group)
            build = functools.partial(pop_calls.ack, results=given)
        await self._settle(deliveries, group, "ack", lambda handle: handle, build, timeout)

    @overload
    async def extend(  # type: ignore[overload-overlap]  # a str is an iterable too
        self, deliveries: Handle, invisible: Duration = 60.0, *, group: str = "", timeout: Duration | None = None
    ) -> InvisibleTimeResult: ...

    @overload
    async def extend(
        self,
        deliveries: Iterable[Handle],
        invisible: Duration = 60.0,
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> list[InvisibleTimeResult]: ...

    async def extend(
        self,
        deliveries: Handle | Iterable[Handle],
        invisible: Duration = 60.0,
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> InvisibleTimeResult | list[InvisibleTimeResult]:
        """Moves the deadline of leases to `invisible` seconds from now (1 s – 12 h); handles stay valid.

        Raises HandleLapsed, InvalidField; PartlyRefused if some of many are refused.
        """
        result: InvisibleTimeResult | list[InvisibleTimeResult] = await self._change(
            deliveries, group, "extend", lambda handle: pop_calls.extend(handle, invisible), timeout
        )
        return result

    @overload
    async def release(  # type: ignore[overload-overlap]  # a str is an iterable too
        self,
        deliveries: Handle,
        delay: Duration | None = None,
        uncounted: bool = False,
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> InvisibleTimeResult: ...

    @overload
    async def release(
        self,
        deliveries: Iterable[Handle],
        delay: Duration | None = None,
        uncounted: bool = False,
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> list[InvisibleTimeResult]: ...

    async def release(
        self,
        deliveries: Handle | Iterable[Handle],
        delay: Duration | None = None,
        uncounted: bool = False,
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> InvisibleTimeResult | list[InvisibleTimeResult]:
        """Releases deliveries: they are delivered again after `delay` seconds (None: the group's backoff).

        With `uncounted` the attempt does not count. `reason` is stored with the message, cut at 4 KiB.
        Raises HandleLapsed, InvalidField; LeaseLost as `ack` does; PartlyRefused if some of many are refused.
        """
        result: InvisibleTimeResult | list[InvisibleTimeResult] = await self._change(
            deliveries, group, "release", lambda handle: pop_calls.release(handle, delay, uncounted, reason), timeout
        )
        return result

    @overload
    async def snooze(  # type: ignore[overload-overlap]  # a str is an iterable too
        self, deliveries: Handle, delay: Duration, reason: str = "", *, group: str = "", timeout: Duration | None = None
    ) -> InvisibleTimeResult: ...

    @overload
    async def snooze(
        self,
        deliveries: Iterable[Handle],
        delay: Duration,
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> list[InvisibleTimeResult]: ...

    async def snooze(
        self,
        deliveries: Handle | Iterable[Handle],
        delay: Duration,
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> InvisibleTimeResult | list[InvisibleTimeResult]:
        """Puts deliveries back for `delay` seconds, because they cannot be handled yet: no attempt counts.

        At most the group's `snoozes_max` times for one message; a further one is a release that counts. Raises as
        `release` does; Unsupported behind an engine without the capability `snooze`.
        """
        result: InvisibleTimeResult | list[InvisibleTimeResult] = await self._change(
            deliveries, group, "snooze", lambda handle: pop_calls.release(handle, delay, False, reason, True), timeout
        )
        return result

    @overload
    async def reject(  # type: ignore[overload-overlap]  # a str is an iterable too
        self, deliveries: Handle, reason: str = "", *, group: str = "", timeout: Duration | None = None
    ) -> InvisibleTimeResult: ...

    @overload
    async def reject(
        self, deliveries: Iterable[Handle], reason: str = "", *, group: str = "", timeout: Duration | None = None
    ) -> list[InvisibleTimeResult]: ...

    async def reject(
        self,
        deliveries: Handle | Iterable[Handle],
        reason: str = "",
        *,
        group: str = "",
        timeout: Duration | None = None,
    ) -> InvisibleTimeResult | list[InvisibleTimeResult]:
        """Sends deliveries to the dead-letter topic of their group. Raises as `ack` does."""
        change = functools.partial(pop_calls.reject, reason=reason)
        result: InvisibleTimeResult | list[InvisibleTimeResult] = await self._change(
            deliveries, group, "reject", change, timeout
        )
        return result

    async def settle(
        self,
        deliveries: Handle | Iterable[Handle] = (),
        sends: Send | Iterable[Send] = (),
        *,
        release: Iterable[Handle] = (),
        reject: Iterable[Handle] = (),
        delay: Duration | None = None,
        uncounted: bool = False,
        reason: str = "",
        results: Result | Iterable[Result | None] = (),
        group: str = "",
        timeout: Duration | None = None,
    ) -> list[SendReceipt]:
        """Acks deliveries and sends messages in one commit: all of it happens, or nothing. Returns the receipts.

        `release`, `reject`: deliveries that end otherwise in the same commit, as `release` and `reject` say of `delay`,
        `uncounted` and `reason`. All are of one group (1–4,096, of which 500 may be released or 250 rejected), and all
        messages together are those of one request (4,096, 15 MiB). `results`: as in `ack`, of `deliveries`. A repeat
        whose first answer was lost is done once.
        Raises HandleLapsed, whose `field` names the delivery; TopicNotFound, InvalidField, StorageFull, RateLimited,
        …: nothing is done then; Unsupported behind an engine without the capability `settle`; DeadlineExceeded if it is
        not known whether it is done; TypeError for a value that is no delivery, popmq.Send or popmq.Result.
        """
        acks, released, rejected = map(pop_calls.listed, (deliveries, release, reject))
        group = pop_calls.one_group([*acks, *released, *rejected], group)
        changes = [pop_calls.release(pop_calls.handle_of(each), delay, uncounted, reason) for each in released]
        changes += [pop_calls.reject(pop_calls.handle_of(each), reason) for each in rejected]
        numbering = self._parts.numbering
        given = [settle_calls.forwarded(each, numbering.message_id) for each in settle_calls.listed_sends(sends)]
        kept = settle_calls.listed_results(results, len(acks)) if results else ()
        call = settle_calls.settle(group, [*map(pop_calls.handle_of, acks)], changes, given, numbering, kept)
        with contextlib.ExitStack() as spans:
            spans.enter_context(self._wire.telemetry.settling("settle", group, len(acks) + len(changes)))
            for topic, rows, _ in given:
                spans.enter_context(self._wire.telemetry.sending(topic, rows))
            receipts = await self._wire.run(call, timeout=timeout)
        self._forget([*acks, *rejected], failed=False)
        self._forget(released, failed=True)
        return receipts

    def _forget(self, deliveries: Iterable[Handle], failed: bool) -> None:
        """Deliveries that are over. `failed`: the broker gave back those after them in their message group."""
        for each in deliveries:
            self._parts.leases.forget(known := pop_calls.name_of(each))
            self._parts.leases.settled(known, failed)

    async def _change(
        self,
        deliveries: Handle | Iterable[Handle],
        group: str,
        name: str,
        change: Callable[[str], Any],
        timeout: Duration | None,
    ) -> Any:
        return await self._settle(deliveries, group, name, change, pop_calls.change, timeout)

    async def _settle(
        self,
        deliveries: Handle | Iterable[Handle],
        group: str,
        name: str,
        entry: Callable[[str], Any],
        build: Callable[[str, list[Any]], Call[list[Any]]],
        timeout: Duration | None,
    ) -> Any:
        one = isinstance(deliveries, (_message.Delivery, str))
        rows = pop_calls.listed(deliveries)
        results: list[Any] = [None] * len(rows)
        for some_group, indices in pop_calls.by_group(rows, group):
            handles = [pop_calls.handle_of(rows[index]) for index in indices]
            with self._wire.telemetry.settling(name, some_group, len(handles)):
                call = build(some_group, [entry(handle) for handle in handles])
                answers = await self._wire.run(call, timeout=timeout)
            for index, answer in zip(indices, answers, strict=True):
                results[index] = answer
                pop_calls.renewed(rows[index], answer)
                if name != "extend":
                    self._forget([rows[index]], pop_calls.failed(answer))
        all_or_raise(results)
        return results[0] if one else results
