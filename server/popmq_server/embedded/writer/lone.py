"""Commands that run on the event loop's own thread, without a hand-over to the writer thread and back.

A command that waits alone while the writer sleeps costs two changes of threads. With a journal its commit is an append
and one sync (store/journal/folding.py). So it runs on the loop's thread, while the writer thread sleeps: in the turn of
the loop that handles its call, if nothing else is to run in it (`Writer.at_once`), else in the next one, if no other
command came (`Writer.turned`) but the Pop that waited for a Send, which run as one batch. That is, if

    the disk is fast     no lone batch of the last REST_S took longer than LONGEST_S: while the loop waits for a disk,
                         it reads no request and sends no heartbeat; so it waits no longer for a sync than ELSEWHERE_S
    it is small          a Send, a Pop or an Ack of few messages
    it needs no fold     changes are unfolded, and neither a fold nor a job is due: these are the writer thread's

If it turns out to need the writer thread it is aborted without an effect, and runs there.
"""

from popmq_server.clock import stopwatch
from popmq_server.contract.commands import Ack, Pop, Send
from popmq_server.contract.operations import Operation
from popmq_server.embedded.store.journal.folding import Elsewhere, Slow
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.writer.batch import Batch, Committed, TooManyPoisoned, nothing
from popmq_server.embedded.writer.core import Core

#: Seconds that a batch may take, its sync included, and how long all commands go to the writer after a slower one.
LONGEST_S, REST_S = 0.05, 5.0
#: Bytes of a send, messages of a pop and handles of an ack: more is for the writer thread.
SEND_BYTES_MAX, MESSAGES_MAX = 64 << 10, 32


class Lone:
    """Runs lone commands of one writer, whose thread begins nothing meanwhile."""

    def __init__(self, core: Core) -> None:
        assert core.store.folding is not None, "without a journal no command runs here"
        self._core, self._folding = core, core.store.folding
        self._slow_until = 0.0
        self._error: Exception | None = None
        #: The last command, or the first of two. If it comes again it needs the writer thread, or it is a look that was
        #: cut short: the event loop must turn before the next one.
        self._last: Operation[object] | None = None

    def took(self, seconds: float) -> None:
        """Notes the time of a batch of one command, on either thread."""
        if seconds > LONGEST_S:
            self._slow_until = stopwatch() + REST_S

    def run(self, first: Operation[object], then: Operation[object] | None = None) -> Committed | None:
        """Runs a command, or a Send and a Pop; no job and no fold may be due. None: it has had no effect, and is for
        the writer thread.
        """
        core = self._core
        if first is self._last or not self._folding.unfolded or not _is_small(first):
            return None
        if then is not None and not _is_small(then):
            return None
        if self._slow_until and stopwatch() < self._slow_until:
            return None
        self._last = first
        try:
            if then is None:
                committed = core.attempt(Batch([first]), [0], nothing)
            else:
                committed = core.attempt(Batch([first, then]), [0, 1], nothing)
        except Slow:
            self._slow_until = stopwatch() + REST_S
        except (MapFull, TooManyPoisoned, Elsewhere):
            pass
        except Exception as error:  # DiskFault, CommitFailed: what follows is for the writer thread
            self._error = error
        else:
            if committed.seconds > LONGEST_S:
                self.took(committed.seconds)
            return committed
        return None

    def raise_fault(self) -> None:
        """On the writer thread: does what follows from a commit that failed in `run`. Raises CommitFailed."""
        error, self._error = self._error, None
        if isinstance(error, DiskFault):
            self._core.after_fault(error)
        elif error is not None:
            raise error


def _is_small(command: Operation[object]) -> bool:
    if type(command) is Send:
        return command.bytes <= SEND_BYTES_MAX
    if type(command) is Ack:
        return len(command.handles) <= MESSAGES_MAX
    return type(command) is Pop and command.max_messages <= MESSAGES_MAX
