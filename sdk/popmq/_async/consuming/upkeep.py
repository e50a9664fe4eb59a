"""Periodic maintenance of a pull consumer: rebalance, commits, locks. A job of its client's scheduler.

every 20 s, and when a heartbeat reports a change    rebalance: lost queues are committed and released, new queues
                                                     start at their committed offset
every 5 s                                            commit; deliveries that were dropped unsettled are sent back
every 20 s                                           locks of the queues are renewed
when the delay of a message is over                  it is delivered again
"""

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Protocol

from popmq._async.concurrency import Mutex, Stop, run_to_end
from popmq._async.consuming.puller import PullContext, Puller
from popmq._async.consuming.share import Share
from popmq._calls import admin_calls
from popmq._consuming.pull_settings import AGAIN_S, COMMIT_S, LEAVE_S, LOCK_S, REBALANCE_S, RETRY, SETTLE_S
from popmq._transport.call_retries import Stopped
from popmq.errors import PopMQError, TopicNotFound, TryLater, WrongConsumeMode
from popmq.pull import PullState

log = logging.getLogger("popmq.consumer")

#: The reason stored with a message whose delivery was dropped.
DROPPED = "dropped by its handler without being settled"


class Step(Protocol):
    """One periodic step."""

    async def __call__(self) -> bool:
        """True: done until its next time. False: try again soon."""


class Upkeep:
    """The pullers of one consumer."""

    def __init__(self, context: PullContext, share: Share, stop: Stop) -> None:
        self._context = context
        self._share = share
        self._stop = stop
        self._pullers: dict[int, Puller] = {}
        self._turn = Mutex()
        self._opened = False
        self._balanced = False  # it has known its queues at least once
        self._complete = False  # it reads every queue that it was assigned
        self._rebalance_at = 0.0
        self._commit_at = 0.0
        self._lock_at = 0.0
        self._losses = 0
        self._settled_at = 0.0  # after a restart of the broker: when all clients should have sent a heartbeat

    async def open(self) -> None:
        """Opens the share and starts to pull its queues. Raises what the share's `open` raises."""
        options = self._context.options
        async with self._turn:
            await self._share.open(self.rebalance, self._stop)
            self._opened = True
            if options.orderly:
                group = await self._context.wire.run(admin_calls.get_group(options.group), self._stop)
                self._context.max_attempts = group.max_attempts
            now = self._context.clock.now()
            self._rebalance_at, self._commit_at, self._lock_at = now, now + COMMIT_S, now + LOCK_S
        await self.run()

    def rebalance(self) -> None:
        """Rebalances at once."""
        self._rebalance_at = 0.0
        self._context.look()

    def due(self) -> float | None:
        """When the next step is due."""
        if not self._opened or self._stop.is_set():
            return None
        dues = [self._rebalance_at, self._commit_at, self._lock_at]
        now = self._context.clock.now()
        with self._context.lock:
            dues += [at for puller in self._pullers.values() if (at := puller.due(now)) is not None]
        return min(dues)

    async def run(self) -> None:
        """Runs the steps that are due. A step that fails is tried again a second later."""
        async with self._turn:
            now = self._context.clock.now()
            self._notice_restart(now)
            self._offer(now)
            # The next time is set before the step runs: a change meanwhile may make it due earlier. Locks come first: a
            # client that was suspended for minutes must not commit offsets of queues that others have read since.
            if self._lock_at <= now:
                self._lock_at = now + LOCK_S
                if not await self._try(self._renew_locks):
                    self._lock_at = now + AGAIN_S
            if self._commit_at <= now:
                self._commit_at = now + COMMIT_S
                if not await self._try(self._commit):
                    self._commit_at = now + AGAIN_S
            if self._rebalance_at <= now:
                self._rebalance_at = now + REBALANCE_S
                if not await self._try(self._rebalance):
                    self._rebalance_at = min(self._rebalance_at, now + AGAIN_S)

    def idle(self) -> bool:
        """Whether nothing is known to pull or to deliver. False while another client still holds an assigned queue, and
        until the share knows what became of the topic.
        """
        with self._context.lock:
            known = self._complete and not self._context.stale
            return known and all(puller.queue.at_end for puller in self._pullers.values())

    async def asks_for_more(self) -> bool:
        """Whether the broker has more messages, or cannot tell. Raises what ends the loop of the consumer."""
        with self._context.lock:
            pullers = list(self._pullers.values())
        try:
            for puller in pullers:
                if await puller.asks_for_more(self._stop):
                    return True
        except (Stopped, TryLater, WrongConsumeMode):
            return True
        except TopicNotFound:
            self._context.outdate()
            return True
        return False

    def wake(self) -> None:
        """Makes its pullers check again whether they may pull."""
        for puller in list(self._pullers.values()):
            puller.wake()

    def states(self) -> list[PullState]:
        """The state of each queue."""
        with self._context.lock:
            return [self._pullers[number].state() for number in sorted(self._pullers)]

    async def close(self) -> None:
        """Commits, releases its queues, and leaves the group."""
        async with self._turn:
            opened, self._opened = self._opened, False
            reachable = True
            try:
                await self._retire(list(self._pullers))
            except PopMQError as error:
                reachable = not isinstance(error, TryLater)
                log.warning("the commit failed, messages handled since the last commit come again: %s", error)
            except BaseException:  # cancelled: its session, which heartbeats would keep, ends all the same
                if opened:
                    await run_to_end(self._share.close, True)
                raise
            if opened:
                await self._share.close(goodbye=reachable)

    def _notice_restart(self, now: float) -> None:
        """A broker that was away may have restarted and lost its sessions and locks. So locks are renewed at once, and
        no further queues are taken until the other clients have sent their heartbeats.
        """
        if self._context.wire.losses != self._losses and now >= self._settled_at + SETTLE_S:
            self._losses = self._context.wire.losses
            self._settled_at = now + SETTLE_S
            self._lock_at = now

    # ── Steps ────────────────────────────────────────────────────────────────────────────────────────────────────────

    async def _try(self, step: Step) -> bool:
        """Runs a step and handles its errors. True: done until its next time."""
        if self._stop.is_set() or not self._opened:
            return True
        try:
            return await step()
        except Stopped:
            return True
        except TryLater as error:
            log.warning("topic %s: nothing changes for now: %s", self._context.options.topic, error)
            return False
        except WrongConsumeMode:  # the share logs it
            self._context.stale = True
            self._rebalance_at = 0.0
            return True
        except PopMQError as error:
            self._context.arrivals.fail(error)
            return True

    def _offer(self, now: float) -> None:
        with self._context.lock:
            due = [puller for puller in self._pullers.values() if (at := puller.due(now)) is not None and at <= now]
        for puller in due:
            self._context.arrivals.offer(puller)

    async def _rebalance(self) -> bool:
        """False: some assigned queues are not locked yet, or some lost queues are not released yet."""
        wanted = await self._share.queues(self._stop)
        before, balanced, self._balanced = set(self._pullers), self._balanced, True
        if self._context.stale or self._share.begun_anew():
            await self._start_over()
        await self._correct([puller for puller in self._pullers.values() if puller.correction])
        if wanted is None:
            return True
        busy = self._leave(wanted)
        await self._retire(self._pullers.keys() - wanted - busy)
        came = wanted - self._pullers.keys()
        if balanced and self._context.clock.now() < self._settled_at:
            came &= before
            self._rebalance_at = min(self._rebalance_at, self._settled_at)
        self._complete = await self._take_on(came) == came
        return self._complete and not busy

    def _leave(self, wanted: set[int]) -> set[int]:
        """Delivers nothing more of queues that were lost. Returns those that are kept for a while, because a handler
        still has a message of them, which would otherwise be delivered a second time elsewhere. An orderly queue is
        kept until its message is settled. None is kept when the group pops now: the broker takes no commits then.
        """
        busy, back, now = set(), [], self._context.clock.now()
        with self._context.lock:
            for number, puller in self._pullers.items():
                stays = number in wanted
                if stays and puller.queue.leaving:
                    back.append(puller)
                elif not stays and not puller.queue.leaving:
                    puller.leave_by = math.inf if puller.queue.orderly else now + LEAVE_S
                puller.queue.leaving = not stays
                if not stays and puller.queue.in_hand and now < puller.leave_by:
                    busy.add(number)
        for puller in back:
            self._context.arrivals.offer(puller)
            puller.wake()
        if not self._share.pulls():
            return set()
        # Queue 0 and the retry topic share one lock: neither is released while the other is in use.
        return busy | {0, RETRY} if busy & {0, RETRY} else busy

    async def _take_on(self, queues: set[int]) -> set[int]:
        """Starts to pull new queues; returns those that could be locked."""
        if not queues:
            return queues
        since = self._context.clock.now()
        mine, seconds = await self._share.lock(queues, self._stop)
        places = await self._share.places(mine, self._stop) if mine else {}
        created = {place.topic_created_ms for place in places.values()}
        created |= {puller.topic_created_ms for puller in self._pullers.values()}
        if len(created) > 1:  # it was deleted and created again: the other queues begin anew, too
            self._context.outdate()
            return set()
        pullers = {number: Puller(self._context, number, place) for number, place in places.items()}
        for puller in pullers.values():
            puller.locked(since + seconds)
        with self._context.lock:
            self._pullers.update(pullers)
        for puller in pullers.values():
            puller.start()
        return mine

    async def _correct(self, pullers: list[Puller]) -> None:
        """Restarts queues: at the offset that the broker gave, or where messages are to be pulled again."""
        for puller in pullers:
            status, offset = puller.correction or ("", 0)
            await self._give_up([puller])
            if status != "NO_MATCHED_LOGIC_QUEUE":
                await self._share_saves([puller], {puller.number: offset})

    async def _start_over(self) -> None:
        """Releases all queues without a commit: the group popped, or the topic was deleted and created again. The
        offsets read before do not describe the position of the group now.
        """
        self._complete = False
        numbers = list(self._pullers)
        await self._give_up(list(self._pullers.values()))
        self._context.stale = False
        await self._share.unlock(numbers, self._stop)

    async def _retire(self, numbers: Iterable[int]) -> None:
        """Commits queues and releases them."""
        pullers = [self._pullers[number] for number in numbers]
        if not pullers:
            return
        await self._context.send_backs.flush(closing=self._stop.is_set())
        await self._give_up(pullers)
        try:
            await self._save(pullers)
        except WrongConsumeMode:
            log.info("this group now pops topic %s, starting at its last commit", self._context.options.topic)
        await self._share.unlock([puller.number for puller in pullers], self._stop)

    async def _give_up(self, pullers: list[Puller]) -> None:
        """Drops queues: nothing of them is delivered or counted any more."""
        with self._context.lock:
            for puller in pullers:
                puller.queue.drop()
                self._pullers.pop(puller.number, None)
        for puller in pullers:
            puller.end()
        for puller in pullers:
            await puller.ended()

    async def _save(self, pullers: Iterable[Puller]) -> None:
        with self._context.lock:
            offsets = {puller: at for puller in pullers if (at := puller.committed()) != puller.saved}
        if offsets:
            await self._share_saves(offsets, {puller.number: offset for puller, offset in offsets.items()})
            for puller, offset in offsets.items():
                puller.saved = offset

    async def _share_saves(self, pullers: Iterable[Puller], offsets: Mapping[int, int]) -> None:
        """Saves offsets of pullers, all of one topic. Of a topic that is gone there is nothing to save."""
        (created_ms,) = {puller.topic_created_ms for puller in pullers}
        try:
            await self._share.save(offsets, created_ms, self._stop)
        except TopicNotFound:
            self._context.outdate()

    async def _commit(self) -> bool:
        self._sweep()
        await self._save(list(self._pullers.values()))
        return True

    def _sweep(self) -> None:
        """Sends back deliveries that were dropped unsettled: they cannot be settled, and no commit could pass them.
        Where messages cannot be sent back, their queue is restarted at that offset.
        """
        options = self._context.options
        for puller in list(self._pullers.values()):
            with self._context.lock:
                offsets = list(puller.forgotten())
            for offset in offsets:
                log.warning("message %d of queue %d was %s", offset, puller.number, DROPPED)
                if not options.group or options.orderly:
                    puller.correction = ("", puller.committed())
                    self._rebalance_at = 0.0
                else:
                    puller.send_back(offset, DROPPED)

    async def _renew_locks(self) -> bool:
        """Renews the locks. Queues that another client has locked, or may have locked meanwhile, are released without
        a commit: it would overwrite the offsets of that client.
        """
        if not self._pullers:
            return True
        since = self._context.clock.now()
        locked, seconds = await self._share.lock(self._pullers, self._stop)
        lost = []
        for puller in self._pullers.values():
            if puller.number in locked and puller.queue.locked(since):
                puller.locked(since + seconds)
            else:
                lost.append(puller)
        if lost:
            await self._give_up(lost)
            self._rebalance_at = 0.0
        return True
