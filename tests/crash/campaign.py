"""The kill -9 campaign: a broker that dies at random moments under the load of several clients, then the verdict."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from popmq_proto.v1 import popmq_pb2 as pb
from tests.crash.broker_process import ROOT, BrokerProcess, free_port
from tests.crash.checker import CLAIMS, Finding, check
from tests.crash.client import GROUPS, TOPICS, body_of, told_of_ack, told_of_pop
from tests.crash.facts import DeadLetter, Facts, Survey
from tests.crash.history import Recorder, read
from tests.crash.store import broken_invariants
from tests.crash.stubs import Stubs

CLIENTS = 5
MAX_ATTEMPTS = {"billing": 4, "bill": 17}
REST_WITHIN_S = 90
KILL_WHILE_STARTING = 0.15


@dataclass
class Verdict:
    seed: int
    findings: list[Finding]
    figures: Counter[str] = field(default_factory=Counter)

    def table(self) -> str:
        """The figures and the claims, for people."""
        broken = Counter(claim for claim, _ in self.findings)
        lines = [f"kill -9 campaign, seed {self.seed}"]
        lines += [f"  {name:<42}{count:>10,}" for name, count in self.figures.items()]
        lines += [f"  {text:<52}{broken[claim] or 'holds':>10}" for claim, text in CLAIMS.items()]
        return "\n".join(lines + [f"  ✗ {claim}: {sentence}" for claim, sentence in self.findings[:40]])


def run(folder: Path, kills: int, seed: int) -> Verdict:
    """Kills the broker so many times under load, lets everything come to rest, and judges."""
    chance = random.Random(seed)
    histories = folder / "histories"
    histories.mkdir(parents=True)
    broker = BrokerProcess(folder / "data", port=free_port()).start()
    prepare(broker)
    started = time.monotonic()
    clients = [_client(broker.endpoint, histories, f"c{i}", seed) for i in range(CLIENTS)]
    try:
        during_start = sum(_kill_once(broker, chance) for _ in range(kills))
        broker.wait_ready()
        (histories / "stop").touch()
        ended = [client.wait(timeout=60) for client in clients]
        assert ended == [0] * CLIENTS, "a client of the campaign failed"
        survey = come_to_rest(broker, histories)
        exit_code = broker.stop()
    finally:
        _end(broker, clients)
    findings = [("store", f"exit code {exit_code} after SIGTERM")] if exit_code else []
    facts = Facts(read(histories))
    findings += check(facts, survey) + [("store", problem) for problem in broken_invariants(broker.data)]
    took = int(time.monotonic() - started)
    return Verdict(
        seed, findings, figures(facts, survey) | Counter(kills=kills, during_start=during_start, seconds=took)
    )


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


def _client(endpoint: str, histories: Path, name: str, seed: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.crash.client", endpoint, str(histories), name, str(seed)]
    return subprocess.Popen(command, cwd=ROOT)


def _end(broker: BrokerProcess, clients: list[subprocess.Popen[bytes]]) -> None:
    """Leaves no process behind, whatever went wrong."""
    for client in clients:
        if client.poll() is None:
            client.kill()
            client.wait()
    if broker.exit_code is None:
        broker.kill()


def prepare(broker: BrokerProcess) -> None:
    """Two topics and two groups: one gives up early, and both come back fast."""
    with Stubs(broker.endpoint) as stubs:
        for topic in TOPICS:
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=pb.Topic(name=topic, queues=4)))
        for group in GROUPS:
            settings = pb.Group(
                name=group,
                max_attempts=MAX_ATTEMPTS[group],
                backoff=pb.Backoff(delays_ms=[100, 500]),
                invisible_ms=2000,
            )
            stubs.admin.CreateGroup(pb.CreateGroupRequest(group=settings))


# ── Rest, and what is there then ─────────────────────────────────────────────────────────────────────────────────────


def come_to_rest(broker: BrokerProcess, histories: Path) -> Survey:
    """Pops and acks whatever is left until every number is zero, then looks at all that is stored."""
    recorder = Recorder(histories, "rest")
    deadline = time.monotonic() + REST_WITHIN_S
    with Stubs(broker.endpoint) as stubs:
        while not _at_rest(stubs) and time.monotonic() < deadline:
            for topic in TOPICS:
                for group in GROUPS:
                    _finish(stubs, recorder, topic, group)
        recorder.close()
        return _survey(stubs)


def _at_rest(stubs: Stubs) -> bool:
    groups = stubs.admin.GetStats(pb.GetStatsRequest(), timeout=10).groups
    return all(not (one.ready or one.in_flight or one.retry or one.backoff) for one in groups)


def _finish(stubs: Stubs, recorder: Recorder, topic: str, group: str) -> None:
    request = pb.PopRequest(topic=topic, group=group, max_messages=1000, wait_ms=100, invisible_ms=5000)
    recorder.called("pop", topic=topic, group=group, attempt_id="")
    answer = stubs.broker.Pop(request, timeout=20)
    recorder.returned("ok", **told_of_pop(answer))
    handles = [delivery.handle for delivery in answer.deliveries]
    if handles:
        recorder.called("ack", group=group, handles=handles)
        acked = stubs.broker.Ack(pb.AckRequest(group=group, handles=handles), timeout=20)
        recorder.returned("ok", **told_of_ack(handles)(acked))


def _survey(stubs: Stubs) -> Survey:
    survey = Survey(max_attempts=MAX_ATTEMPTS)
    for topic in TOPICS:
        stored = survey.stored[topic] = {}
        for delivery in _browse(stubs, topic):
            stored.setdefault(delivery.message.message_id, []).append((delivery.queue, delivery.offset))
    for group in GROUPS:
        dead = survey.dead[group] = {}
        for delivery in _browse(stubs, f"%DLQ%{group}"):
            dead.setdefault(delivery.message.message_id, []).append(_dead_letter(delivery.message))
    for stats in stubs.admin.GetStats(pb.GetStatsRequest(), timeout=10).groups:
        numbers = {field.name: getattr(stats, field.name) for field in stats.DESCRIPTOR.fields}
        survey.stats[stats.group, stats.topic] = numbers
    return survey


def _browse(stubs: Stubs, topic: str) -> Iterator[pb.Delivery]:
    queues = stubs.admin.GetTopic(pb.GetTopicRequest(name=topic), timeout=10).topic.queues
    for queue in range(queues):
        request = pb.BrowseRequest(topic=topic, queue=queue, max_messages=64)
        while True:
            page = stubs.admin.Browse(request, timeout=20)
            yield from page.deliveries
            if page.next_offset >= page.max_offset:
                break
            request.offset = page.next_offset


def _dead_letter(message: pb.Message) -> DeadLetter:
    letter = message.dead_letter
    intact = message.body == body_of(message.message_id)
    return DeadLetter(letter.topic, (letter.queue, letter.offset), letter.attempts, letter.reason, intact)


def figures(facts: Facts, survey: Survey) -> Counter[str]:
    """What happened, so that a reader sees that the campaign was no walk."""
    count: Counter[str] = Counter()
    for operation in facts.history.operations:
        count[f"{operation.kind} {operation.how}"] += 1
    touches = [touch for delivery in facts.by_handle.values() for touch in delivery.touches]
    count["messages sent"] = sum(sent.position is not None for sent in facts.sent.values())
    count["messages stored of unanswered sends"] = sum(
        sent.position is None and message_id in survey.stored[sent.topic] for message_id, sent in facts.sent.items()
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
