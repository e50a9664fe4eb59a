"""All targets by name."""

import importlib
from contextlib import AbstractContextManager
from typing import NamedTuple

from tests.fuzz.target import Running, Target

_API = ("popmq_server.protocols", "popmq_server.values", "popmq_server.contract.commands")
_REMOTING = ("popmq_remoting",)


class Named(NamedTuple):
    """Where a target is, and the packages whose code its inputs are to reach: each module costs time at a start."""

    module: str
    function: str
    packages: tuple[str, ...]

    def prepared(self) -> AbstractContextManager[Running]:
        """The target; imports it, and with it these packages."""
        target: Target = getattr(importlib.import_module(f"tests.fuzz.{self.module}"), self.function)
        return target()


TARGETS = {
    "frames": Named("frames", "server", ("popmq_http2",)),
    "client-frames": Named("frames", "client", ("popmq_http2",)),
    "native": Named("faces", "native", _API),
    "rocketmq": Named("faces", "rocketmq", _API),
    "http": Named("http", "requests", ("popmq_server.protocols.connect", "h11")),
    "json": Named("http", "json", ("popmq_server.protocols.connect", "google.protobuf.json_format")),
    "sql92": Named("filters", "sql", ("popmq_server.values.filters",)),
    "tags": Named("filters", "tags", ("popmq_server.values.filters",)),
    "pages": Named("readers", "pages", ("popmq_server.embedded.store.datafile",)),
    "remoting-frames": Named("remoting", "remoting_frames", _REMOTING),
    "stored-messages": Named("remoting", "stored_messages", _REMOTING),
    "remoting-json": Named("remoting", "remoting_json", _REMOTING),
    "pop-texts": Named("remoting", "pop_texts", _REMOTING),
    "signed-texts": Named("signed", "signed_texts", ("popmq_server.cluster.signed", *_REMOTING)),
    "rows": Named("readers", "rows", ("popmq_server.values", "popmq_server.embedded.store.history_rows")),
}
