"""The kill -9 campaign: kills a broker at random moments under load, then judges the records of its clients.

    load/client.py × CLIENTS   send, pop, ack, change, delete topics  ┐            each writes a history,
    load/reader.py             sealed tokens of one owner             ├─▶ broker   which `check` reads afterwards
    run                        kill -9, restart                       ┘

The load ends first, then the broker comes to rest (rest.py) and stops on SIGTERM. The verdict joins what the checker
finds in the histories with what `popmq check` finds in the store.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.embedded.fsck.check import check_folder
from popmq_verify.judging import sealed
from popmq_verify.judging.checker import CLAIMS, Finding, check
from popmq_verify.judging.facts import Facts, Survey
from popmq_verify.load import client, reader, scratch
from popmq_verify.load.client import FIFO_TOPIC, GROUPS, MAX_ATTEMPTS, TOPICS
from popmq_verify.load.history import Recorder, read
from popmq_verify.load.stubs import Stubs
from popmq_verify.process import impatient
from popmq_verify.process.broker_process import SERVE, BrokerProcess
from popmq_verify.rest import come_to_rest

CLIENTS = 5
KILL_WHILE_STARTING = 0.15
#: Seconds that the load's programs may take to start, and to end: a slow machine needs far more than a quiet one.
LOAD_WITHIN_S = 180.0


@dataclass
class Verdict:
    """What a campaign found. `findings`: contradictions, as (claim, sentence). `figures`: counts of what happened,
    which show that the campaign reached the code it is meant to test. `facts`, `survey`: what it was judged by.
    """

    seed: int
    findings: list[Finding]
    figures: Counter[str] = field(default_factory=Counter)
    facts: Facts | None = None
    survey: Survey | None = None

    def table(self) -> str:
        """The figures and the claims, for people."""
        broken = Counter(claim for claim, _ in self.findings)
        lines = [f"kill -9 campaign, seed {self.seed}"]
        lines += [f"  {name:<62}{count:>10,}" for name, count in self.figures.items()]
        lines += [f"  {text:<62}{broken[claim] or 'holds':>10}" for claim, text in CLAIMS.items()]
        return "\n".join(lines + [f"  ✗ {claim}: {sentence}" for claim, sentence in self.findings[:40]])


def run(
    folder: Path,
    kills: int,
    seed: int,
    dropping: bool = False,
    flags: Sequence[str] = (),
    seconds: float = 0.0,
    others: Sequence[str] = (),
) -> Verdict:
    """Kills the broker at least `kills` times under load, and for at least `seconds`; then as `observed`.

    `dropping`: retention drops what every group has finished, all the while. `flags`: of `popmq serve`.
    """
    chance = random.Random(seed)
    program = [sys.executable, "-m", impatient.__name__] if dropping else SERVE
    broker = BrokerProcess(folder / "data", *flags, program=program)

    def killing() -> Counter[str]:
        """Kills until the number of kills and the seconds are reached; counts the kills, and those during a start."""
        count: Counter[str] = Counter()
        until = time.monotonic() + seconds
        while count["kills"] < kills or time.monotonic() < until:
            count["kills"] += 1
            count["during_start"] += _kill_once(broker, chance)
        return count

    return observed(broker, seed, killing, dropping=dropping, others=others)


def observed(
    broker: BrokerProcess,
    seed: int,
    act: Callable[[], Counter[str]],
    dropping: bool = False,
    clients: int = CLIENTS,
    others: Sequence[str] = (),
) -> Verdict:
    """Does something to a broker under load, lets everything come to rest, and judges. `act` returns its figures."""
    histories = broker.data.parent / "histories"
    histories.mkdir(parents=True)
    started = time.monotonic()
    with loaded(broker, histories, seed, clients, impatient.KEEP_MS if dropping else 0, others) as programs:
        _wait_for_load(histories, programs)
        acted = act()
        broker.wait_ready()
        finish(histories, programs)
        with Stubs(broker.endpoint) as stubs:
            survey = come_to_rest(stubs, Recorder(histories, "rest"), dropping=dropping)
            store = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=10).store
            acted["leases revived since the last start"] = store.revived
            acted["late in sum, ms"] = store.revived_late_ms
        exit_code = broker.stop()
    findings = [("store", f"exit code {exit_code} after SIGTERM")] if exit_code else []
    facts = Facts(read(histories))
    findings += (
        check(facts, survey)
        + sealed.check(facts.history, survey)
        + list(scratch.check(facts.history))
        + [("store", problem) for problem in check_folder(broker.data)]
    )
    took = int(time.monotonic() - started)
    return Verdict(seed, findings, figures(facts, survey) | acted | Counter(seconds=took), facts, survey)


def _wait_for_load(histories: Path, programs: list[subprocess.Popen[bytes]]) -> None:
    """Returns once every program has been answered; on a busy machine that is seconds after its start."""
    deadline = time.monotonic() + LOAD_WITHIN_S
    while time.monotonic() < deadline:
        answered = sum('"how":"ok"' in file.read_text() for file in histories.glob("*.jsonl"))
        if answered == len(programs):
            return
        time.sleep(0.05)


def finish(histories: Path, clients: list[subprocess.Popen[bytes]]) -> None:
    """Ends the load, then the reader, which must have seen all of it."""
    (histories / "stop").touch()
    ended = [process.wait(LOAD_WITHIN_S) for process in clients[1:]]
    (histories / "last").touch()
    ended.append(clients[0].wait(LOAD_WITHIN_S))
    assert not any(ended), "a client of the campaign failed"


def _kill_once(broker: BrokerProcess, chance: random.Random) -> bool:
    """Kills a running or a starting broker and starts it again; True if it was still starting."""
    starting = chance.random() < KILL_WHILE_STARTING
    if starting:
        time.sleep(chance.uniform(0, 0.5))
    else:
        broker.wait_ready()
        time.sleep(chance.uniform(0.05, 1.2))
    broker.kill()
    broker.spawn()
    return starting


@contextmanager
def loaded(
    broker: BrokerProcess, histories: Path, seed: int, count: int, keep_ms: int = 0, others: Sequence[str] = ()
) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Starts a broker, the reader and the load clients, which `finish` ends. Leaves no process running.

    `others`: modules of further load clients, which take the same arguments and end as load/client.py does.
    """
    clients: list[subprocess.Popen[bytes]] = []
    try:
        prepare(broker.start(), keep_ms)
        programs = [reader.__name__, *[client.__name__] * count, *others]
        for i, program in enumerate(programs):
            name = f"c{i}" if i else "reader"
            command = [sys.executable, "-m", program, broker.endpoint, str(histories), name, str(seed)]
            clients.append(subprocess.Popen(command))
        yield clients
    finally:
        broker.kill()
        for process in clients:
            process.kill()
            process.wait()


def prepare(broker: BrokerProcess, keep_ms: int = 0) -> None:
    """Three topics, of which one is FIFO, and two groups that read them: one has few attempts, both a short backoff."""
    with Stubs(broker.endpoint) as stubs:
        retention = pb.Retention(keep_ms=keep_ms)
        for topic in TOPICS:
            kind = pb.FIFO if topic == FIFO_TOPIC else pb.NORMAL
            made = pb.Topic(name=topic, type=kind, queues=4, retention=retention)
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=made))
        for group in GROUPS:
            settings = pb.Group(
                name=group,
                max_attempts=MAX_ATTEMPTS[group],
                backoff=pb.Backoff(delays_ms=[100, 500]),
                invisible_ms=2000,
            )
            stubs.admin.CreateGroup(pb.CreateGroupRequest(group=settings))
            for topic in TOPICS:  # from its first pop on, retention keeps messages for a group
                stubs.broker.Pop(pb.PopRequest(topic=topic, group=group))


def figures(facts: Facts, survey: Survey) -> Counter[str]:
    """Counts of events, to show that the campaign exercised the broker."""
    count: Counter[str] = Counter()
    for operation in facts.history.operations:
        count[f"{operation.kind} {operation.how}"] += 1
    touches = [touch for delivery in facts.by_handle.values() for touch in delivery.touches]
    count["messages sent"] = sum(sent.position is not None for sent in facts.sent.values())
    count["messages stored of unanswered sends"] = sum(
        sent.position is None and message_id in survey.stored[sent.topic] for message_id, sent in facts.sent.items()
    )
    count["messages dropped by retention"] = sum(
        sent.position is not None and message_id not in survey.stored[sent.topic]
        for message_id, sent in facts.sent.items()
    )
    count["request numbers answered again"] = sum(bool(send.told.get("duplicate")) for send in facts.history.of("send"))
    count["deliveries"] = len(facts.by_handle)
    count["of them second and later attempts"] = sum(one.attempt > 1 for one in facts.by_handle.values())
    count["pops answered by a replay"] = sum(bool(pop.told.get("replay")) for pop in facts.history.of("pop"))
    for kind in ("ack", "extend", "release", "reject"):
        count[f"{kind}: messages"] = sum(touch.kind == kind and touch.done for touch in touches)
    count["handles lapsed"] = sum(touch.code == pb.HANDLE_LAPSED for touch in touches)
    count["dead letters"] = sum(map(len, survey.dead.values()))
    return count
