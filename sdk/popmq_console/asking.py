"""The arguments and results of pages and actions: the types between app.py and pages/.

    Page:   Ask ──▶ the values of its template          Action: Ask ──▶ Outcome: a sentence, and the page that shows it

Both raise the SDK's errors. app.py turns them into a page with the broker's own sentence and action, so no page repeats
the rules of the broker: a form sends the typed values, and the broker checks them.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import popmq
from popmq import errors
from popmq.duration import seconds_of
from popmq_console.logins import Login
from popmq_console.options import Options

#: The largest number that a uint32 and an int64 of the contract can hold: most numbers, and sizes in bytes.
T = TypeVar("T")
UINT32_MAX, INT64_MAX = 2**32 - 1, 2**63 - 1
MEBIBYTE, MEBIBYTES = 1 << 20, re.compile(r"[0-9]{1,14}(\.[0-9]{1,20})?")


@dataclass(frozen=True, slots=True)
class Ask:
    """A request of a logged-in user.

    `query`: the values of the URL; `form`: of an action, with repeats. `live`: only the live part of the page is made,
    every few seconds, so a page leaves out values that this part does not show: reading messages is audited.
    """

    login: Login
    options: Options
    query: Mapping[str, str]
    form: Mapping[str, Sequence[str]] = field(default_factory=dict)
    live: bool = False

    @property
    def client(self) -> popmq.AsyncClient:
        """Calls with the key of the login."""
        return self.login.client

    def value(self, name: str) -> str:
        """A value of the URL; "" when it is missing."""
        return self.query.get(name, "").strip()

    def given(self, name: str) -> str:
        """The first value of a field of the form; "" when it is missing."""
        return next(iter(self.form.get(name, ())), "").strip()

    def back(self, otherwise: str) -> str:
        """The page that the form is on, with its filter and its place in the list."""
        return local(self.given("back")) if self.given("back") else otherwise

    def number(self, name: str, least: int = 0, most: int = UINT32_MAX) -> int | None:
        """A whole number of the form; None when the field is empty. Raises InvalidField."""
        text = self.given(name)
        if not text:
            return None
        number = whole(text)
        if number is None or not least <= number <= most:
            raise wrong(name, f"{text!r} is not a whole number from {least} to {most}")
        return number

    def duration(self, name: str) -> float | None:
        """Seconds of a field such as 12h or 1h30m; None when it is empty. Raises InvalidField.

        A number without a unit is refused: one person means seconds, the next one hours.
        """
        text = self.given(name)
        if text and text[-1].isdecimal():
            raise wrong(name, f"{text!r} has no unit: write 90s, 12h or 3d")
        return seconds_of(text, name) if text else None

    def mebibytes(self, name: str) -> int | None:
        """Bytes of a field in MiB such as 0.5; None when the field is empty. Raises InvalidField."""
        text = self.given(name)
        if not text:
            return None
        found = round(float(text) * MEBIBYTE) if MEBIBYTES.fullmatch(text) else -1
        if not 0 <= found <= INT64_MAX:
            raise wrong(name, f"{text!r} is not a size in MiB")
        return found

    def place(self, name: str, most: int = INT64_MAX) -> int:
        """A whole number of the URL; 0 when it is not a number. Raises InvalidField."""
        number = whole(self.value(name)) or 0
        if number > most:
            raise wrong(name, f"{number} is more than {most}")
        return number

    def confirm(self, name: str) -> None:
        """Demands that the name was typed into the field `typed`. Raises InvalidField."""
        if self.given("typed") != name:
            raise wrong("typed", f"nothing was done: type the name {name} to confirm")


class Outcome(NamedTuple):
    """The result of an action as a sentence, and the page that shows it."""

    sentence: str
    to: str


Page = Callable[[Ask], Awaitable[dict[str, Any]]]
Action = Callable[[Ask], Awaitable[Outcome]]


async def tried(call: Awaitable[T], otherwise: T) -> tuple[T, errors.PopMQError | None]:
    """What a page asks for; `otherwise`, and the refusal, when it is denied or not there: the page keeps its fields."""
    try:
        return await call, None
    except (errors.Denied, errors.NotFound) as refusal:
        return otherwise, refusal


def local(to: str) -> str:
    """A path of this console; any other address becomes the first page."""
    plain = to.isascii() and to.isprintable() and "\\" not in to
    return to if plain and to.startswith("/") and not to.startswith("//") else "/"


def whole(text: str) -> int | None:
    """A number in decimal digits that an int64 of the contract can hold, else None."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def moment_of(text: str) -> datetime:
    """A time of the field `at`: in UTC, unless it names an offset. Raises InvalidField."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise wrong("at", f"{text!r} is not a time: write 2026-01-31 12:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def wrong(name: str, sentence: str) -> errors.InvalidField:
    """The refusal of a field of a form."""
    return errors.InvalidField(sentence, code="INVALID_FIELD", field=name)
