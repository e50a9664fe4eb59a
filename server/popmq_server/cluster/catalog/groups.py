"""Groups: what all brokers have of them, and what RocketMQ has no room for, at the name servers.

    every broker       attempts, backoff, order, whether it may read         (200, 201)
    name servers       lease, share number, where it begins, creation time   as JSON, in a namespace of our own

Name servers that were replaced have lost the second part; then the defaults hold, as for a group of another program.
"""

import json
from typing import Any, NamedTuple

from popmq_remoting.errors import RemotingError
from popmq_remoting.requests import bodies, groups, name_server
from popmq_remoting.requests.groups import GroupConfig
from popmq_server.cluster import names
from popmq_server.cluster.brokers import Brokers, whole
from popmq_server.cluster.refusals import NAME_SERVERS, Asked, refusal
from popmq_server.cluster.remembered import ABSENT_S, Remembered
from popmq_server.errors import Refused, group_not_found
from popmq_server.values.ids import GroupId
from popmq_server.values.limits import DELAYS_MS_DEFAULT, INVISIBLE_MS_DEFAULT
from popmq_server.values.records import Group

NAMESPACE = "POPMQ_GROUPS"
#: consumeTimeoutMinute, as RocketMQ has it by default.
TIMEOUT_MIN_DEFAULT = 15
#: 49 days: a handle has no room for a longer lease.
TIMEOUT_MIN_MAX = 49 * 24 * 60
#: One key for the list of all groups.
_ALL = "all"


class GroupTerms(NamedTuple):
    """What RocketMQ has no room for. Fields as in records.Group.

    `created_ms` 0: no gateway has created the group, or one has begun to: some brokers may lack it.
    """

    invisible_ms: int = INVISIBLE_MS_DEFAULT
    share_number: int = 0
    start_from: str = "EARLIEST"
    start_ms: int = 0
    created_ms: int = 0

    def text(self) -> str:
        """As it is kept."""
        return json.dumps(self._asdict(), separators=(",", ":"))


def read_terms(text: str) -> GroupTerms:
    """From its text; the defaults for what it does not say, or says wrongly: a release before or after this one."""
    try:
        found: Any = json.loads(text)
    except ValueError:
        return GroupTerms()
    if not isinstance(found, dict):
        return GroupTerms()
    defaults = GroupTerms()._asdict()
    return GroupTerms(**{name: found[name] for name in defaults if type(found.get(name)) is type(defaults[name])})


def group_of(name: str, config: GroupConfig, terms: GroupTerms) -> Group:
    """As the contract has it. `name`: as PopMQ calls it."""
    return Group(
        GroupId(0), name, config.retries_max + 1, tuple(config.retry_delays_ms) or DELAYS_MS_DEFAULT,
        terms.invisible_ms, terms.share_number, terms.start_from, terms.start_ms,
        exclusive_owner=False, fifo=config.ordered, in_flight_max=0, stop_on_failure=False, lite_exclusive=False,
        consume_enable=config.consume_enabled, subscription_expiry_ms=0, created_ms=terms.created_ms, snoozes_max=0,
    )  # fmt: skip


class Groups:
    """The groups of the cluster, by the names that PopMQ has for them."""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        self._listed = Remembered[str, dict[str, Group]](self._read)
        brokers.lacks_group = self._doubt
        #: consumeTimeoutMinute of each, by the names that brokers have for them.
        self._timeouts_min: dict[str, int] = {}

    async def get(self, name: str, field: str = "group") -> Group:
        """Raises Refused INVALID_FIELD, GROUP_NOT_FOUND, UNAVAILABLE."""
        names.broker_group(name, field)
        # Another gateway, or another worker, may have made it a moment ago.
        found = (await self.all()).get(name) or (await self._listed.get(_ALL, ABSENT_S)).get(name)
        if found is None:
            raise group_not_found(name, field)
        return found

    def session_ms(self, group: Group) -> int:
        """How long a push consumer may take for a message."""
        timeout_min = self._timeouts_min.get(names.broker_group(group.name), TIMEOUT_MIN_DEFAULT)
        return 60_000 * min(max(1, timeout_min), TIMEOUT_MIN_MAX)

    async def all(self) -> dict[str, Group]:
        """All of users, by name. Raises Refused UNAVAILABLE."""
        return await self._listed.get(_ALL)

    async def everywhere(self, *, anew: bool = False) -> dict[str, dict[str, GroupConfig] | Refused]:
        """The groups of each master now, by broker and by the names that brokers have for them.

        The list is asked for: a broker that creates groups unasked creates the one whose settings are asked for.
        """
        ask = groups.all_groups()
        masters = await self._brokers.masters(anew=anew)
        return await self._brokers.of_each(masters, lambda _: ask, groups.group_table, Asked(""))

    async def terms(self, name: str) -> GroupTerms | None:
        """What name servers have of a group now; None: nothing. Raises Refused UNAVAILABLE."""
        ask = name_server.get_kv(NAMESPACE, names.broker_group(name))
        try:
            answer = await self._brokers.cluster.name_servers.ask(ask, self._brokers.until_s())
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS)) from error
        return read_terms(answer.fields.get("value", "")) if answer.code == 0 else None

    async def write_terms(self, name: str, terms: GroupTerms) -> None:
        """Raises Refused UNAVAILABLE if a name server did not take them."""
        request = name_server.put_kv(NAMESPACE, names.broker_group(name), terms.text())
        await self._brokers.written(f"group {name!r}", request)

    async def remove_terms(self, name: str) -> None:
        """The group is deleted. Raises Refused UNAVAILABLE if a name server did not do it."""
        await self._brokers.written(
            f"the end of group {name!r}", name_server.delete_kv(NAMESPACE, names.broker_group(name))
        )

    async def _read(self, _: str) -> dict[str, Group]:
        """A group that some brokers lack is one all the same: pops of those are refused, and name them."""
        answers = await self.everywhere()
        answered = [table for table in answers.values() if not isinstance(table, Refused)]
        if not answered:
            whole(answers)
        configs = {name: config for table in reversed(answered) for name, config in table.items()}
        self._timeouts_min = {name: config.consume_timeout_min for name, config in configs.items()}
        terms = await self._all_terms()
        return {
            name: group_of(name, configs[names.broker_group(name)], terms.get(names.broker_group(name), GroupTerms()))
            for name in names.shown_groups(configs)
        }

    async def _all_terms(self) -> dict[str, GroupTerms]:
        ask = name_server.list_kv(NAMESPACE)
        try:
            answer = await self._brokers.cluster.name_servers.ask(ask, self._brokers.until_s())
            table = bodies.table(answer, "table") if answer.code == 0 else {}
        except RemotingError as error:
            raise refusal(error, Asked(NAME_SERVERS)) from error
        return {name: read_terms(str(text)) for name, text in table.items()}

    def changed(self) -> None:
        """A group was made, changed or deleted."""
        self._listed.forget(_ALL)

    def _doubt(self) -> None:
        """A broker lacks a group: the group was deleted, or is not made there."""
        self._listed.doubt(_ALL)

    def close(self) -> None:
        """Ends what is being read."""
        self._listed.close()
