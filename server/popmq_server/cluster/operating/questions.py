"""What `popmq cluster` does, for the command line: each function opens a client, asks, and closes it."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from popmq_remoting import Cluster
from popmq_remoting.errors import BadFormat
from popmq_remoting.requests import name_server
from popmq_server.clock import SystemClock
from popmq_server.cluster import layout, names
from popmq_server.cluster.access import cluster_settings
from popmq_server.cluster.brokers import Brokers
from popmq_server.cluster.catalog.layouts import Layouts, queues_of
from popmq_server.cluster.catalog.topics import Topics
from popmq_server.cluster.operating.judging import Finding, findings
from popmq_server.cluster.operating.survey import Seen, survey
from popmq_server.errors import Refused, StartError, invalid
from popmq_server.options import Options
from popmq_server.settings import load
from popmq_server.settings.table import PREFIX

#: The settings of `popmq serve` that say where the cluster is.
NAMES = ("namesrv", "cluster", "broker_key", "broker_tls", "broker_ca", "broker_cert", "broker_cert_key")

T = TypeVar("T")


class Kept(NamedTuple):
    """The layout of a topic. `used`: by gateways, "" = they refuse the topic until one is written.

    `by_server`: what each name server has, "" = none.
    """

    topic: str
    used: str
    by_server: Mapping[str, str]


def options_of(argv: Sequence[str]) -> Options:
    """From flags and variables. Raises SettingError."""
    variables = {f"{PREFIX}{name.upper()}" for name in NAMES}
    environ = {name: value for name, value in os.environ.items() if name in variables}
    return load(["--engine", "rocketmq", *argv], environ).options


def seen(options: Options) -> list[Seen]:
    """All processes of brokers. Raises Refused, StartError."""
    return _run(options, lambda brokers: survey(brokers, SystemClock().wall_ms() / 1000))


def checked(options: Options) -> tuple[list[Seen], list[Finding]]:
    """The same, and what weakens a promise."""
    processes = seen(options)
    return processes, findings(processes)


def kept(options: Options, topic: str, wanted: str | None = None) -> Kept:
    """The layout of a topic, written first if `wanted` is one. Raises Refused, StartError."""
    return _run(options, lambda brokers: _kept(brokers, topic, wanted))


async def _kept(brokers: Brokers, name: str, wanted: str | None) -> Kept:
    known = await Topics(brokers).get(name)
    if wanted is not None:
        try:
            await Layouts(brokers).write(known, layout.read(wanted))
        except BadFormat as bad:
            raise invalid(
                f"{wanted!r} is no layout: {bad}", field="layout", action="write it as broker-a:4;broker-b:4"
            ) from None
    request = name_server.get_kv(layout.namespace(known.is_fifo), names.broker_topic(name))
    answers = await brokers.cluster.name_servers.tell_all(request, brokers.until_s())
    texts = layout.kept(name, answers)
    by_server = {
        address: f"({answer})" if isinstance(answer, Exception) else answer.fields.get("value", "")
        for address, answer in answers.items()
    }
    try:
        agreed = layout.agreed(name, texts)
    except Refused:
        return Kept(name, "", by_server)
    if agreed is None and known.is_fifo:
        return Kept(name, "", by_server)
    first = agreed.layout if agreed is not None else layout.Layout([])
    return Kept(name, first.appended(queues_of(await brokers.route(name))).text(), by_server)


def _run(options: Options, ask: Callable[[Brokers], Awaitable[T]]) -> T:
    async def run() -> T:
        try:
            cluster = Cluster(cluster_settings(options, f"popmq-cluster@{os.getpid()}"))
        except BadFormat as error:
            raise StartError(str(error)) from None
        try:
            return await ask(Brokers(cluster, options.cluster))
        finally:
            await cluster.close()

    return asyncio.run(run())
