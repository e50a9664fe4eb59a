"""The arguments and results of pages and actions: the types between app.py and pages/.

    Page:   Ask ──▶ the values of its template          Action: Ask ──▶ Outcome: a sentence, and the page that shows it

Both raise the SDK's errors. app.py turns them into a page with the broker's own sentence and action, so no page repeats
the rules of the broker: a form sends the typed values, and the broker checks them.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import popmq
from popmq import errors
from popmq_console.logins import Login
from popmq_console.options import Options


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

    def number(self, name: str, least: int = 0) -> int | None:
        """A whole number of the form; None when the field is empty. Raises InvalidField."""
        text = self.given(name)
        if not text:
            return None
        if not text.isascii() or not text.isdecimal() or len(text) > 18 or int(text) < least:
            raise wrong(name, f"{text!r} is not a whole number from {least} on")
        return int(text)

    def place(self, name: str) -> int:
        """A whole number of the URL; 0 when it is not a number."""
        text = self.value(name)
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0

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


def wrong(name: str, sentence: str) -> errors.InvalidField:
    """The refusal of a field of a form."""
    return errors.InvalidField(sentence, code="INVALID_FIELD", field=name)
