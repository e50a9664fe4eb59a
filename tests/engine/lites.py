"""Lite topics for tests: calls as in rig.py, with messages that say their lite topic before the colon."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.contract.commands import queries
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.rig import HOUR, MINUTE, Delivery, Rig, deliveries


def create(rig: Rig, name: str = "chat", **settings: Any) -> None:
    rig.do(ask.CreateTopic(name, 1, False, 72 * HOUR, "LITE", **settings))


def lite_rig(tmp_path: Path) -> Iterator[Rig]:
    """A fixture: LITE topic chat and group g; the store is checked at the end."""
    rig = Rig(tmp_path)
    create(rig)
    rig.group("g")
    yield rig
    assert rig.findings() == []
    rig.core.close()


def note(text: str, **extra: Any) -> Outgoing:
    """A message that says its lite topic before the colon: "ann:1" goes to ann."""
    name = text.partition(":")[0]
    text_id = text[:40]
    data = pb.Message(message_id=text_id, body=text.encode(), lite_topic=name).SerializeToString()
    return Outgoing(data, bytes(8), (hash8(text_id),), text_id, Extra(lite_topic=name, **extra))


def sending(*texts: str, topic: str = "chat") -> ask.Send:
    return ask.Send(topic, tuple(note(text) for text in texts))


def send(rig: Rig, *texts: str, topic: str = "chat") -> ask.Sent:
    return rig.do(sending(*texts, topic=topic))  # type: ignore[no-any-return]


def popping(*names: str, **asked: Any) -> ask.Pop:
    return ask.Pop(asked.pop("topic", "chat"), asked.pop("group", "g"), lite=names, **asked)


def pop(rig: Rig, *names: str, **asked: Any) -> list[Delivery]:
    """Pops from these lite topics, or from those that `client_id` has subscribed to."""
    answer = rig.do(popping(*names, **asked))
    return [row for part in answer.leases for row in deliveries(part)]


def sync(rig: Rig, client: str, action: str, *names: str, start: Any = None, group: str = "g") -> ask.LiteSynced:
    return rig.do(ask.SyncLite("chat", group, client, action, names, start))  # type: ignore[no-any-return]


def wait(rig: Rig, ms: int) -> None:
    """Moves the clock, with housekeeping before and after: unused lite topics are first seen, later removed."""
    for step in (MINUTE, MINUTE, ms, MINUTE, MINUTE):
        rig.advance(step)


def lites(rig: Rig, topic: str = "chat") -> int:
    return rig.look(queries.Topics(topic))[0].lite_topics
