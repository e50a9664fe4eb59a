"""Small batches that run on the event loop's own thread, without a hand-over to the writer thread and back.

A hand-over costs two changes of threads, and then both threads want the interpreter. With a journal the commit of a
small batch is an append and one sync (store/journal/folding.py). So it runs on the loop's thread, while the writer
thread sleeps: one command in the turn of the loop that handles its call, if nothing else is to run in it
(`Writer.at_once`), others when they are gathered (`Writer.turned`). That is, if

    the disk is fast     no such batch of the last REST_S took longer than LONGEST_S: while the loop waits for a disk,
                         it reads no request and sends no heartbeat; so it waits no longer for a sync than ELSEWHERE_S,
                         and runs nothing while that sync lasts. It does wait for pages that are not in memory.
                         Several commands run here only if the last sync took no longer than OVERLAP_S: on the writer
                         thread the loop reads requests during a sync
    it is small          few Sends, Pops and Acks, of few messages
    it needs no fold     changes are unfolded, and neither a fold nor a job is due: these are the writer thread's

If it turns out to need the writer thread it is aborted without an effect, and runs there.
"""

from collections.abc import Sequence

from popmq_server.clock import stopwatch
from popmq_server.contract.commands import Ack, Pop, Send
from popmq_server.contract.operations import Operation
from popmq_server.embedded.store.journal.folding import Elsewhere, Slow
from popmq_server.embedded.store.lmdb import DiskFault, MapFull
from popmq_server.embedded.writer.batch import Batch, Committed, TooManyPoisoned, nothing
from popmq_server.embedded.writer.core import Core

#: Seconds that a batch may take, its sync included, and how long all commands go to the writer after a slower one.
LONGEST_S, REST_S = 0.05, 5.0
#: Seconds of a sync from which on it is worth a hand-over that the loop reads requests meanwhile.
OVERLAP_S = 0.0005
#: Commands of a batch, their bytes of sends, and the messages that pops ask for and acks name: more is for the writer
#: thread.
COMMANDS_MAX, SEND_BYTES_MAX, MESSAGES_MAX = 64, 64 << 10, 128


class Lone:
    """Runs small batches of one writer, whose thread begins nothing meanwhile."""

    def __init__(self, core: Core) -> None:
        assert core.store.folding is not None, "without a journal no command runs here"
        self._core, self._folding = core, core.store.folding
        self._slow_until = 0.0
        self._error: Exception | None = None
        #: The first command of the last batch. If it comes again it needs the writer thread, or it is a look that was
        #: cut short: the event loop must turn before the next one.
        self._last: Operation[object] | None = None

    def took(self, seconds: float) -> None:
        """Notes the time of a batch of one command, on either thread."""
        if seconds > LONGEST_S:
            self._slow_until = stopwatch() + REST_S

    def run(self, commands: Sequence[Operation[object]]) -> Committed | None:
        """Runs commands in the order of their lanes, as one batch; no job and no fold may be due. None: they have had
        no effect, and are for the writer thread.
        """
        core, first = self._core, commands[0]
        if first is self._last or not self._folding.unfolded or not self._are_few(commands):
            return None
        if self._slow_until and (stopwatch() < self._slow_until or self._folding.stands):
            return None
        self._last = first
        try:
            committed = core.attempt(Batch(commands), [*range(len(commands))], nothing)
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

    def _are_few(self, commands: Sequence[Operation[object]]) -> bool:
        """Whether commands may run here, by their kinds and sizes and by the disk."""
        if len(commands) > 1 and (len(commands) > COMMANDS_MAX or self._folding.sync_s > OVERLAP_S):
            return False
        size = messages = 0
        for command in commands:
            if command.__class__ is Send:
                size += command.bytes
            elif command.__class__ is Ack:
                messages += len(command.handles)
            elif command.__class__ is Pop:
                messages += command.max_messages
            else:
                return False
        return size <= SEND_BYTES_MAX and messages <= MESSAGES_MAX

    def raise_fault(self) -> None:
        """On the writer thread: does what follows from a commit that failed in `run`. Raises CommitFailed."""
        error, self._error = self._error, None
        if isinstance(error, DiskFault):
            self._core.after_fault(error)
        elif error is not None:
            raise error
