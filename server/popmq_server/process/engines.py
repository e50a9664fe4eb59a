"""The engines that `popmq serve --engine` starts. A new one is a line here, and its name in options.ENGINES."""

from collections.abc import Callable

from popmq_server.clock import Clock
from popmq_server.contract.engine import RoomForAnswers
from popmq_server.contract.life import Life
from popmq_server.monitoring.metrics import Metrics
from popmq_server.options import Options


def _embedded(options: Options, clock: Clock, metrics: Metrics, room: RoomForAnswers, note_faults: bool) -> Life:
    from popmq_server.embedded.loop.life import EmbeddedLife  # here: a start loads the engine that it serves

    return EmbeddedLife(options, clock, metrics, room, note_faults=note_faults)


def _rocketmq(options: Options, clock: Clock, metrics: Metrics, room: RoomForAnswers, note_faults: bool) -> Life:
    from popmq_server.cluster.gateway.life import ClusterLife

    return ClusterLife(options, clock, metrics, room)


#: By name. `note_faults`: the process has nothing else, and the engine may note a signal that ends it.
FACTORIES: dict[str, Callable[[Options, Clock, Metrics, RoomForAnswers, bool], Life]] = {
    "embedded": _embedded,
    "rocketmq": _rocketmq,
}
