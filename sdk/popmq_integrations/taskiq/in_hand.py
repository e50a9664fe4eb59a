"""The tasks that a worker of taskiq has in hand, and what is stored in the commit that ends each."""

from collections import defaultdict
from contextvars import ContextVar

import popmq
from popmq.errors import InvalidField


class InHand:
    """One delivery, from when it is given to taskiq until taskiq acks it. Its lease is renewed meanwhile."""

    def __init__(self, delivery: popmq.Delivery, task_id: str) -> None:
        self.delivery = delivery
        self.task_id = task_id
        self.begun = False
        self.failure = ""  # why it becomes a dead letter
        self.sends: list[popmq.Send] = []  # its retry
        self.result: popmq.Result | None = None

    def settle(self) -> None:
        """Ends it, in the background: as a dead letter if it failed and is not tried again, else with an ack."""
        if not self.begun:
            self.delivery.reject("taskiq did not run it: no task of this worker has its name, or its body is damaged")
        elif self.sends:
            try:
                self.delivery.settle(self.sends, self.result)
            except InvalidField as error:  # it would run again for nothing
                self.delivery.reject(f"its retry cannot be sent: {error}")
        elif self.failure:
            self.delivery.reject(self.failure)
        else:
            self.delivery.ack(self.result)

    def give_back(self) -> None:
        """Visible at once, and no attempt counts."""
        self.delivery.release(0.0, uncounted=True, reason="the worker stopped before it began this task")


#: The delivery that this task of the event loop runs.
_MINE: ContextVar[InHand | None] = ContextVar("popmq_in_hand", default=None)


class HandLedger:
    """What is in hand, by the id of its task. Two deliveries may have one id and run at the same time: a message comes
    again to its own worker if the broker was away for longer than its lease.
    """

    def __init__(self) -> None:
        self._by_id: defaultdict[str, list[InHand]] = defaultdict(list)

    def take(self, delivery: popmq.Delivery, task_id: str) -> InHand:
        """A delivery is given to taskiq."""
        taken = InHand(delivery, task_id)
        self._by_id[task_id].append(taken)
        return taken

    def begin(self, task_id: str) -> None:
        """Taskiq runs a task."""
        for each in self._by_id.get(task_id, ()):
            if not each.begun:
                each.begun = True
                _MINE.set(each)
                return

    def running(self, task_id: str) -> InHand | None:
        """The delivery of a task that runs and is not acked; None: there is none."""
        begun = [each for each in self._by_id.get(task_id, ()) if each.begun]
        mine = _MINE.get()
        return mine if mine in begun else next(iter(begun), None)

    def settle(self, ended: InHand) -> None:
        """Taskiq acks it; a second ack is ignored."""
        rows = self._by_id.get(ended.task_id, [])
        if ended in rows:
            rows.remove(ended)
            if not rows:
                del self._by_id[ended.task_id]
            ended.settle()

    def give_back_unbegun(self) -> None:
        """Gives back what taskiq took and never ran."""
        for rows in self._by_id.values():
            for each in rows:
                if not each.begun:
                    each.give_back()
        self._by_id.clear()
