"""The owner of a query in its group: attached once by the driver, kept alive by a heartbeat.

An owner (see `AttachOwner` in popmq.proto) outlives this process: messages popped in its name stay bound to its
tokens. Attaching takes it over and fences the tasks of an earlier driver.
"""

import logging
import threading
from collections.abc import Iterable, Sequence

import popmq
from popmq_spark.lease.part import LeaseLoss, complain
from popmq_spark.options import OptionError, Options
from popmq_spark.positions import Start

#: Renewals in one lease: two may fail before messages come back to the group.
RENEWALS_PER_LEASE = 3

_log = logging.getLogger("popmq_spark")


def is_known(client: popmq.Client, group: str, name: str, lease: float) -> bool:
    """Whether the broker still has an owner, and with it the tokens of its epochs. Attaching would create another one.

    Asks by a renewal of the first generation: an owner that lives refuses it as fenced, or takes it.
    """
    try:
        client.owners.renew(group, name, 1, lease)
    except popmq.errors.Fenced:
        return True
    except (popmq.errors.OwnerNotFound, popmq.errors.GroupNotFound):
        return False
    return True


class Owner:
    """An attached owner. `generation` goes into every task, so that tasks of an older driver are refused.

    `acked_epoch` is the last epoch known as finished; the broker holds at least that.
    """

    def __init__(self, client: popmq.Client, options: Options, name: str, topics: Sequence[str] = ()) -> None:
        """Attaches the owner, and creates the group if there is none. `topics`: as `attach`, from startingOffsets on.

        Errors: TopicNotFound; OptionError when the group exists and is not exclusive; Unavailable.
        """
        self.name = name
        self._client = client
        self._options = options
        self._stopped = threading.Event()
        if options.exclusive_owner:
            self._make_exclusive_group()
        self._attached: set[str] = set()
        self._attaching = threading.Lock()  # held while the generation moves: a renewal by the older one is fenced
        # Names a topic if there is one, so that no group is created for a query whose topic does not exist.
        attachment = self._attach(topics[0] if topics else "", options.starting_offsets)
        self.generation = attachment.generation
        self.acked_epoch = attachment.acked_epoch
        self.unread_epoch = -1  # the last one that was acked by this process and held no message
        self.attach(topics[1:], options.starting_offsets)
        self._attached.update(topics)
        self._heartbeat = threading.Thread(target=self._renew_until_stopped, name="popmq-heartbeat", daemon=True)
        self._heartbeat.start()

    def attach(self, topics: Iterable[str], start: Start) -> None:
        """Makes topics known to the group, which begins at `start` in those that are new to it: all that are read.

        Each one moves the generation, so never while tasks of a micro-batch run. Errors: TopicNotFound.
        """
        self._attached &= {*topics}  # one that is gone may come again
        for topic in sorted({*topics} - self._attached):
            with self._attaching:
                self.generation = self._attach(topic, start).generation
            self._attached.add(topic)

    def _attach(self, topic: str, start: Start) -> popmq.Attachment:
        options = self._options
        return self._client.owners.attach(
            options.group, self.name, lease=options.invisible_time, topic=topic, start=start, create_group=True
        )

    def ack_up_to(self, epoch: int) -> None:
        """Finishes every message of the epochs up to `epoch`. Idempotent; asks the broker once only.

        Errors: Fenced when another run of the query attached; LeaseLoss when others popped messages after the batch had
        read them: the epoch is finished then, too; Unavailable.
        """
        if epoch <= self.acked_epoch:
            return
        options = self._options
        finished = self._client.owners.ack_up_to(options.group, self.name, self.generation, epoch)
        self.acked_epoch = epoch
        if not finished.acked and not finished.torn:
            self.unread_epoch = epoch
        if finished.torn:
            complain(
                options.fail_on_lease_loss and LeaseLoss,
                f"popmq: {finished.torn} messages of epoch {epoch} went to other consumers of group {options.group} "
                "while the lease was over, though the batch is stored; they may be processed twice. The epoch is "
                "acked: a restart goes on after it. Set exclusiveOwner, or a longer invisibleTime; to go on without "
                "an error set failOnLeaseLoss to false",
            )

    def stop(self) -> None:
        """Ends the heartbeat. Nothing is acked or released: the next run takes over the owner's messages."""
        self._stopped.set()

    def _make_exclusive_group(self) -> None:
        group = self._options.group
        try:
            self._client.groups.create(group, exclusive_owner=True)
        except popmq.errors.AlreadyExists as error:
            if not self._client.groups.get(group).exclusive_owner:
                raise OptionError(
                    f"popmq: exclusiveOwner = 'true', but the group {group} exists and lets others pop "
                    "messages that an owner held; change the group, or take another one"
                ) from error

    def _renew_until_stopped(self) -> None:
        options = self._options
        while not self._stopped.wait(options.invisible_time / RENEWALS_PER_LEASE):
            try:
                with self._attaching:
                    self._client.owners.renew(options.group, self.name, self.generation, options.invisible_time)
            except (popmq.errors.Fenced, popmq.errors.OwnerNotFound) as error:
                _log.warning("the lease is no longer renewed: %s", error)
                return
            except popmq.PopMQError as error:
                _log.warning("the lease could not be renewed now: %s", error)
