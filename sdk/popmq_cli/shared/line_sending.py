"""The messages of a file's lines, sent in pieces: a line that is refused is named by its number."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

import click

import popmq

#: A piece is sent when it has this many messages, or bytes of bodies: one request carries 15 MiB.
MESSAGES, BYTES = 500, 8 << 20
#: Refused lines that are named.
TOLD = 10
_PLACE = re.compile(r"^messages\[\d+\]\.")


class LineRefused(click.UsageError):
    """A line that is not a message."""

    def __init__(self, line: int, why: object, noun: str = "line") -> None:
        if isinstance(why, UnicodeEncodeError):
            why = "a text of it is not UTF-8"
        problem = "is not a message" if noun == "line" else "cannot be sent"
        super().__init__(f"{noun} {line} {problem}: {_PLACE.sub('', str(why))}")


class LineSender:
    """Sends numbered messages to a topic. `next_line`: the first behind all that are stored.

    `noun`: what is numbered, "line" or "message". `take` gets the receipts.
    """

    def __init__(
        self,
        client: popmq.Client,
        topic: str,
        first: int = 1,
        noun: str = "line",
        take: Callable[[list[Any]], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._topic = topic
        self._noun = noun
        self._take = take
        self._lines: list[int] = []
        self._piece: list[popmq.Message] = []
        self._bytes = 0
        self.sent = 0
        self.next_line = first

    def add(self, line: int, message: popmq.Message) -> None:
        """Sends what was added when it is enough for a piece; raises as `flush`."""
        self._lines.append(line)
        self._piece.append(message)
        self._bytes += len(message.body)
        if len(self._piece) >= MESSAGES or self._bytes >= BYTES:
            self.flush()

    def flush(self) -> None:
        """Sends what was added.

        Raises LineRefused for a message that no request can carry: those before it are stored, and no other; and
        PartlyRefused for those that the broker refused, by line: all other lines before `next_line` are stored.
        """
        lines, piece = self._lines, self._piece
        self._lines, self._piece, self._bytes = [], [], 0
        if piece:
            self._send(lines, piece)

    def refuse(self, line: int, why: object) -> NoReturn:
        """Sends what was added, and raises LineRefused for this line."""
        self.flush()
        self.next_line = line
        raise LineRefused(line, why, self._noun)

    def _send(self, lines: list[int], piece: list[popmq.Message]) -> None:
        self.next_line = lines[0]
        refused: dict[int, popmq.PopMQError] = {}
        try:
            receipts = self._client.send(self._topic, piece)
        except popmq.errors.PartlyRefused as partly:
            receipts = [one for one in partly.results if not isinstance(one, popmq.PopMQError)]
            refused = {lines[place]: error for place, error in partly.errors.items()}
        except (TypeError, ValueError, popmq.errors.InvalidField) as error:
            if getattr(error, "field", "") == "topic":
                raise
            self._find(lines, piece, error)
            return
        self.sent += len(receipts)
        stored = [line for line in lines if line not in refused]
        self.next_line = next((line for line in lines if not stored or line > stored[-1]), lines[-1] + 1)
        self._take(receipts)
        if refused:
            raise LinesRefused(refused, len(receipts), self._noun)

    def _find(self, lines: list[int], piece: list[popmq.Message], error: Exception) -> None:
        """One message cannot be sent, and none was: sends those before it, half by half."""
        if len(piece) == 1:
            if self._noun == "message" and isinstance(error, popmq.errors.InvalidField):
                error.message = _PLACE.sub(f"message {lines[0]}: ", error.message)
                raise error
            raise LineRefused(lines[0], error, self._noun) from None
        half = len(piece) // 2
        self._send(lines[:half], piece[:half])
        self._send(lines[half:], piece[half:])


class LinesRefused(popmq.errors.PartlyRefused):
    """Lines that the broker refused, by their numbers."""

    def __init__(self, refused: dict[int, popmq.PopMQError], stored: int, noun: str) -> None:
        super().__init__([*refused.values(), *[None] * stored])
        told = [f"{noun} {line} was refused: {error.message}" for line, error in refused.items()]
        self.message = "\n".join([*told[:TOLD], *([f"and {len(told) - TOLD} others"] if len(told) > TOLD else [])])
        if noun == "line":
            self.action = "all other lines before that of --from-line are stored"
