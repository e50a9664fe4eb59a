"""The result of the job, compared with the flights that were sent."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Outcome:
    """Counts of flights: as sent, as the topic and the group have them, as the table has them.

    The broker's counts show repetitions that Spark removed on the way: they are faults, too.
    """

    sent: int
    stored: int  # by the broker, in the topic
    acked: int | None  # by the group
    in_flight: int | None
    rows: int  # of the table
    different: int  # among the rows
    repeated: int  # rows whose message was delivered more than once
    same_delays: bool  # by carrier, as in the CSV
    same_hours: bool  # by carrier and hour in the topic of the windows, as in the CSV
    spared: tuple[str, ...] = ()  # programs that were to be killed, and were not

    @property
    def missing(self) -> int:
        return self.sent - self.different

    @property
    def duplicates(self) -> int:
        return self.rows - self.different

    @property
    def line(self) -> str:
        return f"{self.different} flights, {self.missing} missing, {self.duplicates} duplicates"

    def faults(self) -> list[str]:
        """The faults, as sentences; empty if the table has exactly the sent flights, and the broker has none left."""
        found = {
            f"{self.missing} flights are missing in the table": self.missing,
            f"{self.duplicates} rows of the table are duplicates": self.duplicates,
            f"{self.repeated} messages were delivered more than once": self.repeated,
            f"the topic holds {self.stored} messages for {self.sent} flights": self.stored - self.sent,
            f"the group acked {self.acked} messages for {self.sent} flights": self.acked != self.sent,
            f"{self.in_flight} messages are still in flight": self.in_flight,
            "the delays in the table are not those of the CSV": not self.same_delays,
            "the delays in the topic of the windows are not those of the CSV": not self.same_hours,
        }
        spared = [f"the {program} was not killed: the run ended before its turn" for program in self.spared]
        return [text for text, wrong in found.items() if wrong] + spared
