"""The rights that commands and queries need of the caller's access key; each class names its own (`needs`).

Needs    all of them have to be covered: protocols/access/authorization.py compares them with the caller's key
Caller   what a command may ask about the key, for what only the store can compare (`narrowed`)
"""

from typing import NamedTuple, Protocol

from popmq_server.values.message import RETRY_PREFIX
from popmq_server.values.reach import Reach


class Need(NamedTuple):
    """A permission that a command needs. `topic`, `group`: "" = any that the key allows.

    `permission`: send, receive, admin; describe: any right on the topic; known: any key. `or_admin`: or admin.
    """

    permission: str
    topic: str = ""
    group: str = ""
    or_admin: bool = False

    def __str__(self) -> str:
        """As an entry of `allow`."""
        if self.permission in ("send", "describe"):
            return f"send:{self.topic or '*'}"
        if self.permission == "receive":
            return f"receive:{self.topic or '*'}/{self.group or '*'}"
        return self.permission


Needs = tuple[Need, ...]

ADMIN = (Need("admin"),)
#: Every key suffices.
KNOWN = (Need("known"),)
#: No key suffices: no grant covers it, not even `*`.
NOBODY = (Need("nobody"),)


class Caller(Protocol):
    """The access key of a caller."""

    @property
    def name(self) -> str:
        """The name of the key."""

    @property
    def reach(self) -> Reach:
        """What it may receive."""

    def reach_or_admin(self) -> Reach:
        """What it may receive, or inspect."""

    def may(self, need: Need) -> bool:
        """Whether its grants suffice."""

    def may_create(self, group: str) -> bool:
        """Whether it may create a group."""


def covers(caller: Caller, needs: Needs) -> bool:
    """Whether the key covers all of them."""
    return all(map(caller.may, needs))


# `or_admin`: calls that operators make for a client, or that only read.


def sends(topic: str, or_admin: bool = False) -> Needs:
    return (Need("send", topic, "", or_admin),)


def receives(topic: str, group: str, or_admin: bool = False) -> Needs:
    """Reading a topic; a retry topic belongs to the topic and group in its name."""
    if not topic.startswith(RETRY_PREFIX):
        return (Need("receive", topic, group, or_admin),)
    its_group, _, its_topic = topic.removeprefix(RETRY_PREFIX).partition("+")
    own = Need("receive", its_topic, its_group, or_admin)
    return (own, Need("receive", its_topic, group, or_admin)) if group else (own,)


def receives_from(group: str, or_admin: bool = False) -> Needs:
    """Commands with handles, which determine the topic, or with an owner or a lease, whose topics the engine compares
    with what the key may receive (`narrowed`).
    """
    return receives("", group, or_admin)


def looks(topic: str, group: str) -> Needs:
    """Reading messages; without a topic, those of all topics."""
    return receives(topic, group, or_admin=True) if topic else ADMIN


def describes(topic: str) -> Needs:
    """A topic's existence and settings: any right on the topic suffices."""
    return looks(topic, "") if topic.startswith(RETRY_PREFIX) else (Need("describe", topic),)


def sent_to(topic: str) -> Needs:
    """Messages that are sent and not visible yet; those of all topics are for admin."""
    return sends(topic, or_admin=True) if topic else ADMIN


def named_group(group: str) -> Needs:
    """Numbers of one group; unfiltered lists of all groups are for admin."""
    return receives_from(group, or_admin=True) if group else ADMIN
