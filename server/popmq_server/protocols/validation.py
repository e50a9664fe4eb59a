"""Names, filters and limits of requests that mean the same in both protocols, checked before anything waits."""

import functools

from popmq_server import logs
from popmq_server.contract.rights import Need
from popmq_server.errors import invalid
from popmq_server.protocols.access import access_keys
from popmq_server.values.filters import filter as filters
from popmq_server.values.message import (
    DEAD_LETTER_PREFIX,
    GIVE_UP_TOPIC,
    GROUP_NAME_MAX,
    RESULT_PREFIX,
    RETRY_PREFIX,
    TOPIC_NAME_MAX,
    check_name,
    check_text,
    dead_letter_topic,
    results_topic,
)

#: Entries of one request.
ENTRIES_MAX = 4096
SEND_BYTES_MAX = 16 << 20
INVISIBLE_MS_MIN, INVISIBLE_MS_MAX = 1_000, 43_200_000
CLIENT_ID_BYTES_MAX = 128


def topic_name(name: str, field: str = "topic") -> str:
    """Validates a topic's name; names of topics for dead letters and results are valid too.

    Retry topics are not popped by name: a Pop of their topic delivers their entries.
    """
    if name.startswith(DEAD_LETTER_PREFIX):
        return dead_letter_topic(check_name(name.removeprefix(DEAD_LETTER_PREFIX), field, GROUP_NAME_MAX))
    if name.startswith(RESULT_PREFIX):
        return results_topic(check_name(name.removeprefix(RESULT_PREFIX), field, GROUP_NAME_MAX))
    return check_name(name, field, TOPIC_NAME_MAX)


def group_name(name: str, field: str = "group") -> str:
    return check_name(name, field, GROUP_NAME_MAX)


def browsed_name(name: str, field: str = "topic") -> str:
    """Validates a topic's name; names of retry topics are valid too."""
    if not name.startswith(RETRY_PREFIX):
        return topic_name(name, field)
    group, _, topic = name.removeprefix(RETRY_PREFIX).partition("+")
    return f"{RETRY_PREFIX}{group_name(group, field)}+{topic_name(topic, field)}"


# The caches of this package belong to modules, not to a server: each is bounded, and its values depend on no state.
@functools.lru_cache(maxsize=4096)
def client_id(text: str, field: str = "client_id", required: bool = False) -> str:
    """Validates the id of a client. Raises Refused for characters that no list and no log can show as they are."""
    check_text(text, field, CLIENT_ID_BYTES_MAX, required=required)
    if (shown := logs.visible(text)) != text:
        raise invalid(f"{field} {shown[:80]!r} has a control character in it", field=field, action="name it otherwise")
    return text


@functools.lru_cache(maxsize=4096)
def sent_name(name: str) -> str:
    """Validates the name of a topic that clients may send to."""
    if name.startswith(DEAD_LETTER_PREFIX) or name == GIVE_UP_TOPIC:
        raise invalid(
            f"{topic_name(name)!r} is a dead-letter topic: only the broker writes to it",
            field="topic",
            action="send to the topic that the message is for",
        )
    if name.startswith(RESULT_PREFIX):
        raise invalid(
            f"{topic_name(name)!r} has the results of a group: only the broker writes to it",
            field="topic",
            action="give the result with the ack of the message",
        )
    return topic_name(name)


def check_filter(kind: str, text: str, topic: str, group: str) -> None:
    """Compiles a filter, if the caller may receive anything as this group: that takes milliseconds. Raises Refused.

    The engine is asked after that, and so the topic is compared later.
    """
    key = access_keys.caller()
    if key is not None and not key.may(Need("receive", "", group, or_admin=True)):
        raise access_keys.denied(key, Need("receive", topic, group))
    filters.make(kind, text)
