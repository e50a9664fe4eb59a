"""Which settings of brokers weaken a promise, and what to set: the table of `popmq cluster check`.

Not met    a promise of docs/capabilities.md does not hold, beyond what it says of clusters
weaker     it holds, later or with more repeats; or something is left to other programs' mistakes
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from popmq_remoting.routing.route import MASTER
from popmq_server.cluster.features import FLOOR, RECALLS, Facts, version_of
from popmq_server.cluster.names import GATEWAYS
from popmq_server.cluster.operating.survey import Seen

#: A clock that is further away than this makes times of delayed messages, and of listings, wrong by as much.
CLOCK_S = 2.0
#: How often brokers write positions to disk, at most: what was acked since then comes again after a crash.
FLUSH_MS = 500
#: Since this version a lease that is over comes back in 0.3 s, if that is switched on.
KV_POPS = (5, 5)
#: Replicas of these copy no topic that has a type (apache/rocketmq#9403), and every topic of a gateway has one.
NO_TYPES = ((5, 3, 2), (5, 3, 3))


class Finding(NamedTuple):
    """`promise`: what it weakens. `is_met`: whether the promise holds all the same. `wanted`: what to set."""

    broker: str
    setting: str
    value: str
    wanted: str
    promise: str
    why: str
    is_met: bool


class _Rule(NamedTuple):
    """`default`: where a broker does not name it. `is_good`: of its value. `since`: older ones have no such setting."""

    setting: str
    default: str
    wanted: str
    promise: str
    why: str
    is_met: bool
    is_good: Callable[[str], bool]
    since: tuple[int, ...] = FLOOR


def _is(wanted: str) -> Callable[[str], bool]:
    return lambda value: value.strip().lower() == wanted.lower()


def _at_most(limit: int) -> Callable[[str], bool]:
    return lambda value: value.strip().isdecimal() and int(value) <= limit


def _at_least(limit: int) -> Callable[[str], bool]:
    return lambda value: value.strip().isdecimal() and int(value) >= limit


RULES = (
    _Rule(
        *("flushDiskType", "ASYNC_FLUSH", "SYNC_FLUSH", "OK of a Send"),
        "what was sent in the last 0.5 s is lost when its machine fails",
        False,
        _is("SYNC_FLUSH"),
    ),
    _Rule(
        *("flushConsumerOffsetInterval", "5000", "500", "OK of an Ack is final"),
        "what was acked since positions were written last comes again after a crash",
        False,
        _at_most(FLUSH_MS),
    ),
    _Rule(
        *("timerWheelEnable", "true", "true", "delayed messages"),
        "brokers refuse delayed messages, and pops",
        False,
        _is("true"),
    ),
    _Rule(
        *("autoCreateTopicEnable", "true", "false", "unknown names are refused"),
        "a typing error of another program makes a topic; gateways make none",
        True,
        _is("false"),
    ),
    _Rule(
        *("autoCreateSubscriptionGroup", "true", "false", "unknown names are refused"),
        "a typing error of another program makes a group; gateways make none",
        True,
        _is("false"),
    ),
    _Rule(
        *("enableRetryTopicV2", "false", "true", "a retry wakes a parked Pop"),
        "a retry is seen up to 2 s later",
        True,
        _is("true"),
    ),
    _Rule(
        *("popConsumerKVServiceEnable", "false", "true", "release now, lease over"),
        "a message comes again after 4–6 s, and not after 0.3 s",
        True,
        _is("true"),
        KV_POPS,
    ),
    _Rule(
        *("recallMessageEnable", "false", "true", "recall"),
        "delayed messages cannot be recalled",
        True,
        _is("true"),
        RECALLS,
    ),
    _Rule(
        *("enablePropertyFilter", "false", "true", "SQL filters"),
        "a Pull with an SQL filter is refused",
        True,
        _is("true"),
    ),
    _Rule(
        *("maxTransferCountOnMessageInDisk", "8", "32", "reading a backlog"),
        "a read from disk has at most so many messages",
        True,
        _at_least(32),
    ),
    _Rule(
        *("maxTransferBytesOnMessageInDisk", "65536", "262144", "reading a backlog"),
        "a read from disk has at most so many bytes",
        True,
        _at_least(262_144),
    ),
)


def findings(seen: Iterable[Seen]) -> list[Finding]:
    """Of all processes: those of replicas only where they do not answer, since only masters serve."""
    found = list[Finding]()
    for each in seen:
        if each.error:
            wanted = "start it, or make it reachable from here"
            found.append(
                _finding(each, "(no answer)", each.error, wanted, "all", "it does not answer", each.id != MASTER)
            )
        elif each.id == MASTER:
            found += _of_master(each)
    return found


def _of_master(seen: Seen) -> Iterable[Finding]:
    facts = Facts(version_of(seen.version), seen.version, seen.settings)
    if facts.version < FLOOR:
        floor = ".".join(map(str, FLOOR))
        yield _finding(seen, "(version)", seen.version, f"{floor} or later", "all", "gateways do not call it", False)
    if seen.replicas and facts.version[:3] in NO_TYPES:
        why = "replicas do not copy topics that have a type: after a failover, create the topics again"
        yield _finding(seen, "(version)", seen.version, "5.4 or later", "OK of a Send", why, False)
    if seen.ahead_s is not None and abs(seen.ahead_s) > CLOCK_S:
        why = "times of delayed messages and of listings are wrong by as much"
        yield _finding(
            seen, "(clock)", f"{round(seen.ahead_s):+d} s", "NTP, there and here", "delayed messages", why, True
        )
    role = facts.settings.get("brokerRole", "ASYNC_MASTER")
    if seen.replicas and role != "SYNC_MASTER":
        why = "an OK does not wait for a replica, so a failover loses what was sent last"
        yield _finding(seen, "brokerRole", role, "SYNC_MASTER", "OK of a Send", why, False)
    if seen.in_sync < seen.replicas or (role == "SYNC_MASTER" and not seen.in_sync):
        value, why = f"{seen.in_sync} of {seen.replicas}", "sends wait for a replica in vain, and answer UNAVAILABLE"
        yield _finding(seen, "(replicas in sync)", value, "all of them", "OK of a Send", why, False)
    if seen.shuts_out:
        wanted = f"the right to subscribe, on Group:{GATEWAYS}"
        why = "what a killed push consumer held waits for its lease; gateways do not find each other's clients"
        yield _finding(seen, "(rights of the user)", seen.shuts_out, wanted, "release now, lease over", why, True)
    for rule in RULES:
        value = facts.settings.get(rule.setting, rule.default)
        if facts.version >= rule.since and not rule.is_good(value):
            yield _finding(seen, rule.setting, value, rule.wanted, rule.promise, rule.why, rule.is_met)


def _finding(seen: Seen, setting: str, value: str, wanted: str, promise: str, why: str, is_met: bool) -> Finding:
    name = seen.broker if seen.id == MASTER else f"{seen.broker} (replica {seen.id})"
    return Finding(name, setting, value, wanted, promise, why, is_met)
