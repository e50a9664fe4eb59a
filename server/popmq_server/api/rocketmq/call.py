"""The client's headers, which come with each call."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from popmq_http2 import Arrival
from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_server.access import access_keys
from popmq_server.api.rocketmq.status import Declined

#: Client ids hold a host name, a process id and a number; each lease stores one.
CLIENT_ID_CHARACTERS_MAX = 512
#: Headers are read as Latin-1, where parts of other characters look like the controls above these.
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Call(NamedTuple):
    """Header values are opaque texts, "" when absent.

    `language`: JAVA, GO, PYTHON, RUST, DOTNET, CPP, HTTP (that is Node). `remaining_s`: seconds until the client's
    deadline, None without one. `on_arrival`: of a stream, Call.add_arrival_callback; None where the transport lacks it.
    """

    client_id: str
    language: str
    namespace: str
    remaining_s: Callable[[], float | None]
    on_arrival: Callable[[Callable[[Arrival], Any]], None] | None = None

    @property
    def is_node(self) -> bool:
        return self.language == "HTTP"

    def check(self) -> None:
        """Raises Refused for callers without an access key, and Declined CLIENT_ID_REQUIRED: the broker keeps a
        client's state under its id.
        """
        access_keys.caller()
        if not self.client_id.strip():
            raise Declined(pb.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing")
        if len(self.client_id) > CLIENT_ID_CHARACTERS_MAX:
            raise Declined(pb.BAD_REQUEST, f"the header x-mq-client-id has over {CLIENT_ID_CHARACTERS_MAX} characters")
        if _CONTROL.search(self.client_id):
            raise Declined(pb.BAD_REQUEST, "the header x-mq-client-id has a control character in it")


def call_of(context: Any) -> Call:
    """Reads the headers of a call."""
    said = dict(context.invocation_metadata() or ()).get
    client_id, language, namespace = said("x-mq-client-id", ""), said("x-mq-language", ""), said("x-mq-namespace", "")
    return Call(client_id, language, namespace, context.time_remaining)
