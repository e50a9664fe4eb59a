"""Tagged messages and filters for tests."""

from popmq_server.contract import commands as ask
from popmq_server.values.outgoing import Outgoing
from popmq_server.values.records import Subscription
from tests.engine.rig import Rig, message

RED, BLUE = ("tag", "red"), ("tag", "blue")


def send(rig: Rig, *messages: Outgoing, topic: str = "t") -> None:
    rig.do(ask.Send(topic, messages, bytes=sum(len(one.data) for one in messages)))


def tagged(*texts: str) -> list[Outgoing]:
    """Messages whose tag is the text before the first digit."""
    return [message(text, tag=text.rstrip("0123456789")) for text in texts]


def shop(rig: Rig, queues: int = 1) -> Rig:
    """Creates topic t and group g, which does not read the topic yet."""
    rig.topic("t", queues)
    rig.group("g")
    return rig


def set_filter(rig: Rig, kind: str, text: str) -> Subscription:
    subscription: Subscription = rig.do(ask.SetFilter("t", "g", (kind, text)))
    return subscription
