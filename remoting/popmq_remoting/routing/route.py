"""Which brokers have a topic's queues, and their addresses: what a name server answers to 105 and 106."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from popmq_remoting import loose_json
from popmq_remoting.codes import Permission
from popmq_remoting.errors import BadFormat
from popmq_remoting.names import QUEUES_MAX

#: The id of a master among the addresses of a broker; replicas have others.
MASTER = 0


@dataclass(frozen=True)
class TopicQueues:
    """The queues of a topic on one broker."""

    read: int
    write: int
    permission: Permission

    @property
    def is_readable(self) -> bool:
        return bool(self.read and self.permission & Permission.READ)

    @property
    def is_writable(self) -> bool:
        return bool(self.write and self.permission & Permission.WRITE)


@dataclass(frozen=True)
class BrokerAddresses:
    """A master and its replicas, which have one name: addresses by id."""

    cluster: str
    addresses: Mapping[int, str]

    @property
    def master(self) -> str | None:
        return self.addresses.get(MASTER)


@dataclass(frozen=True)
class Route:
    """The brokers of a topic by name; without queues, all brokers of a cluster."""

    queues: Mapping[str, TopicQueues] = field(default_factory=dict)
    brokers: Mapping[str, BrokerAddresses] = field(default_factory=dict)
    #: Spread over brokers under logical queue numbers, which this package does not resolve.
    is_static: bool = False


def read_route(body: bytes) -> Route:
    """The body of an answer to 105. Raises BadFormat."""
    found = _object(loose_json.loads(body), "a route")
    queues = {
        _text(each, "brokerName"): TopicQueues(
            _number(each, "readQueueNums"), _number(each, "writeQueueNums"), Permission(_number(each, "perm") & 15)
        )
        for each in _objects(found.get("queueDatas"))
    }
    brokers = {_text(each, "brokerName"): _broker(each) for each in _objects(found.get("brokerDatas"))}
    return Route(queues, brokers, bool(found.get("topicQueueMappingByBroker")))


def read_cluster(body: bytes) -> Route:
    """The body of an answer to 106: all brokers. Raises BadFormat."""
    found = _object(loose_json.loads(body), "the cluster's brokers")
    table = _object(found.get("brokerAddrTable") or {}, "the table of brokers")
    return Route(brokers={name: _broker(_object(each, "a broker")) for name, each in table.items()})


def _broker(data: dict[str, Any]) -> BrokerAddresses:
    addresses = _object(data.get("brokerAddrs") or {}, "the addresses of a broker")
    if not all(isinstance(address, str) for address in addresses.values()):
        raise BadFormat("an address of a broker is no text")
    try:
        return BrokerAddresses(str(data.get("cluster") or ""), {int(id): address for id, address in addresses.items()})
    except ValueError:
        raise BadFormat("the id of a broker is no number") from None


def _objects(value: Any) -> list[dict[str, Any]]:
    if value is not None and not isinstance(value, list):
        raise BadFormat("a list of a route is none")
    return [_object(each, "an entry of a route") for each in value or []]


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadFormat(f"{what} is no JSON object")
    return value


def _text(data: dict[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str):
        raise BadFormat(f"{name} of a route is no text")
    return value


def _number(data: dict[str, Any], name: str) -> int:
    value = data.get(name)
    if type(value) is not int or not 0 <= value <= QUEUES_MAX:
        raise BadFormat(f"{name} of a route is no number that a topic can have")
    return value
