"""Random steps with results against a model that is a dict, with generations of a few names, restarts and crashes."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import GivenResult
from popmq_server.embedded.operations import RedrivePiece, ResultsPiece
from popmq_server.embedded.rules.results import places
from popmq_server.embedded.rules.topics import chunk
from tests.engine.rig import HOUR, MINUTE, SECOND, Delivery, Rig

TOPIC = "%RESULT%g"
IDS = [f"m{number}" for number in range(6)]
ids = st.sampled_from(IDS)


class Known(NamedTuple):
    """The result of an id. `text`: its body; None: it failed."""

    text: str | None
    stored_ms: int


class Results(RuleBasedStateMachine):
    """One group in one topic. Messages have few ids, so most have several results in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.small = {name: getattr(places, name) for name in ("MOVE_NAMES", "GENERATION_NAMES", "FRESH_MIN", "PARTS")}
        self.open_bytes = chunk.OPEN_BYTES_MAX
        places.MOVE_NAMES, places.GENERATION_NAMES, places.FRESH_MIN = 3, 7, 1
        self.rig = Rig(self.folder / "data")
        self.known: dict[str, Known] = {}
        self.keep_ms, self.lengthened = HOUR, False
        self.held: list[Delivery] = []
        self.texts = 0

    @initialize(chunks=st.booleans())
    def begin(self, chunks: bool) -> None:
        if chunks:
            chunk.OPEN_BYTES_MAX = 0
        self.rig.pair(max_attempts=2, results_keep_ms=HOUR)

    def teardown(self) -> None:
        for name, value in self.small.items():
            setattr(places, name, value)
        chunk.OPEN_BYTES_MAX = self.open_bytes
        try:
            self.rig.settle()
            assert self.rig.findings() == []
        finally:
            self.rig.abandon()
            shutil.rmtree(self.folder)

    @rule(chosen=st.lists(ids, min_size=1, max_size=4), given=st.lists(st.booleans(), min_size=4, max_size=4))
    def send_pop_and_ack(self, chosen: list[str], given: list[bool]) -> None:
        self.rig.send(*chosen)
        self._ack(self.rig.pop(len(chosen)), given)

    @rule(chosen=st.lists(ids, min_size=1, max_size=3))
    def send_and_pop(self, chosen: list[str]) -> None:
        self.rig.send(*chosen)
        self.held += self.rig.pop(len(chosen))

    @rule(given=st.lists(st.booleans(), min_size=4, max_size=4), settles=st.booleans())
    def ack_what_is_held(self, given: list[bool], settles: bool) -> None:
        rows, self.held = self.held[:4], self.held[4:]
        if rows:
            self._ack(rows, given, settles)

    def _ack(self, rows: list[Delivery], given: list[bool], settles: bool = False) -> None:
        results = list[GivenResult]()
        for place, (_, gives) in enumerate(zip(rows, given, strict=False)):
            if gives:
                self.texts += 1
                results.append(GivenResult(place, f"text {self.texts}".encode()))
        handles = tuple(row.handle for row in rows)
        if settles:
            (answer,) = self.rig.run(ask.Settle("g", handles, results=tuple(results)))
            refused = [isinstance(answer, Exception)] * len(rows)
        else:
            refused = [each is not None for each in self.rig.do(ask.Ack("g", handles, tuple(results))).results]
        for result in results:
            if not refused[result.handle]:
                self.known[rows[result.handle].message_id] = Known(result.body.decode(), self.rig.now)

    @rule()
    def reject_one(self) -> None:
        if self.held:
            row = self.held.pop()
            (answer,) = self.rig.reject([row])
            if not isinstance(answer, Exception):
                self.known[row.message_id] = Known(None, self.rig.now)

    @rule()
    def redrive(self) -> None:
        letters = [each.message_id for each in self.rig.dead()]
        self.rig.do(RedrivePiece("g"))
        for each in letters:
            self.known.pop(each, None)

    @rule(chosen=st.lists(ids, min_size=1, max_size=4))
    def store(self, chosen: list[str]) -> None:
        """Results without an ack, some ids twice in a request: the last one counts."""
        given = list[ask.MessageResult]()
        for each in chosen:
            self.texts += 1
            given.append(ask.MessageResult(each, f"text {self.texts}".encode()))
            self.known[each] = Known(f"text {self.texts}", self.rig.now)
        self.rig.do(ask.StoreResults("g", tuple(given)))

    @rule(chosen=st.lists(ids, min_size=1, max_size=3, unique=True))
    def forget(self, chosen: list[str]) -> None:
        self.rig.do(ask.ForgetResults("g", tuple(chosen)))
        for each in chosen:
            self.known.pop(each, None)

    @rule(ms=st.sampled_from([SECOND, 2 * SECOND, 2 * SECOND, 20 * MINUTE]))
    def time_passes(self, ms: int) -> None:
        """Leases that end by themselves fail some messages: what they leave is asked of the dead letters."""
        held = {row.message_id for row in self.held} if ms > MINUTE else set()
        self.rig.advance(ms)
        if held:
            self.held = []
            for letter in self.rig.dead():
                if letter.dead_letter.reason == "lease expired" and letter.message_id in held:
                    self.known[letter.message_id] = Known(None, letter.dead_letter.dead_ms)

    @rule(keep_ms=st.sampled_from([HOUR, 10 * MINUTE, MINUTE]))
    def keep(self, keep_ms: int) -> None:
        self.rig.do(ask.UpdateGroup("g", {"results_keep_ms": keep_ms}))
        self.known = {key: one for key, one in self.known.items() if self.rig.now - one.stored_ms < self.keep_ms}
        self.lengthened |= keep_ms > self.keep_ms
        self.keep_ms = keep_ms

    @rule(purge=st.booleans())
    def empty(self, purge: bool) -> None:
        self.rig.do(ask.PurgeTopic(TOPIC) if purge else ask.DeleteTopic(TOPIC)) if self._is_there() else None
        self.known.clear()

    def _is_there(self) -> bool:
        return ("t", TOPIC) in self.rig.core.state.ids

    @rule(crash=st.booleans())
    def start_again(self, crash: bool) -> None:
        if crash:
            self.rig.crash()
        else:
            self.rig.restart()

    @invariant()
    def every_id_has_its_last_result(self) -> None:
        if ("g", "g") not in self.rig.core.state.ids:
            return
        found = self.rig.look(ResultsPiece("g", tuple(IDS), 1 << 20))
        rows: dict[str, Any] = {key: pb.Result.FromString(data) for data, _, key in found.rows}
        shown = {key: None if row.HasField("failure") else row.body.decode() for key, row in rows.items()}
        now = self.rig.now
        wanted = {key: one.text for key, one in self.known.items() if now - one.stored_ms < self.keep_ms}
        if self.lengthened:  # what a shorter time had hidden and retention had not dropped yet is found again
            shown = {key: text for key, text in shown.items() if key in wanted}
        assert shown == wanted
