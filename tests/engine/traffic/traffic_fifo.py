"""FIFO messages for tests: the first character of a text is its message group."""

from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract import commands as ask
from popmq_server.errors import Refused
from popmq_server.values.message import Extra
from popmq_server.values.outgoing import Outgoing, hash8
from tests.engine.rig import Rig, message


def fifo_message(message_group: str, text: str) -> Outgoing:
    """What the api makes of a message with a message group."""
    data = pb.Message(message_id=text, body=text.encode(), message_group=message_group).SerializeToString()
    return Outgoing(data, bytes(8), (hash8(text),), text, Extra(message_group))


def fifo_pair(rig: Rig, queues: int = 1, **settings: object) -> None:
    """FIFO topic t and group g, the group bound to the topic."""
    rig.do(ask.CreateTopic("t", queues, False, 72 * 3_600_000, "FIFO"))
    rig.group("g", **settings)
    rig.pop()


def send_fifo(rig: Rig, *texts: str) -> None:
    send_more(rig, [(text[0], text) for text in texts])


def send_more(rig: Rig, messages: list[tuple[str, str]]) -> None:
    """(message group, text) pairs, in one request."""
    rig.do(ask.Send("t", tuple(fifo_message(*one) for one in messages)))


def dead_texts(rig: Rig) -> list[str]:
    """Bodies of the group's dead letters."""
    return [letter.body.decode() for letter in rig.dead()]


def in_order(*texts: str, topic: str = "f") -> ask.Send:
    """Messages of the message groups that their first characters name."""
    entries: list[Outgoing | Refused] = []
    for text in texts:
        data = pb.Message(message_id=text, body=text.encode(), message_group=text[0]).SerializeToString()
        entries.append(message(text)._replace(data=data, extra=Extra(text[0])))
    return ask.Send(topic, tuple(entries), bytes=1)
