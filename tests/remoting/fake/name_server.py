"""A name server: routes that brokers registered, and a store of keys and values. Restarted, it knows no routes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from popmq_remoting.codes import RequestCode, ResponseCode
from popmq_remoting.wire.command import Request, Response
from tests.remoting.fake.server import Client, FakeServer, ok


@dataclass
class Registered:
    """What a broker told: its addresses by id, and (read queues, write queues, perm) of its topics."""

    addresses: dict[int, str]
    topics: dict[str, tuple[int, int, int]] = field(default_factory=dict)


class FakeNameServer(FakeServer):
    """`brokers` may be changed at any time."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        super().__init__(
            {
                RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
                RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
                RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._topics,
                RequestCode.GET_TOPICS_BY_CLUSTER: self._topics,
                RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete,
                RequestCode.PUT_KV_CONFIG: self._put,
                RequestCode.GET_KV_CONFIG: self._get,
                RequestCode.DELETE_KV_CONFIG: self._forget,
                RequestCode.GET_KVLIST_BY_NAMESPACE: self._list,
            },
            secrets,
        )
        self.brokers: dict[str, Registered] = {}
        self.kv: dict[tuple[str, str], str] = {}
        #: Topics with logical queues.
        self.static: set[str] = set()

    def _route(self, client: Client, request: Request) -> Response:
        topic = request.fields["topic"]
        found = {name: broker for name, broker in self.brokers.items() if topic in broker.topics}
        if not found:
            return Response(ResponseCode.TOPIC_NOT_EXIST, f"No topic route info in name server for the topic: {topic}")
        queues = [
            {"brokerName": name, "readQueueNums": read, "writeQueueNums": write, "perm": perm, "topicSysFlag": 0}
            for name, broker in found.items()
            for read, write, perm in [broker.topics[topic]]
        ]
        brokers = [_broker(name, broker) for name, broker in found.items()]
        route: dict[str, object] = {"queueDatas": queues, "brokerDatas": brokers, "filterServerTable": {}}
        if topic in self.static:
            route["topicQueueMappingByBroker"] = {name: {"topic": topic} for name in found}
        return ok(json.dumps(route).encode())

    def _cluster(self, client: Client, request: Request) -> Response:
        """As brokers write it: the ids are bare numbers."""
        entries = []
        for name, broker in self.brokers.items():
            addresses = ",".join(f'{id}:"{address}"' for id, address in broker.addresses.items())
            entries.append(f'"{name}":{{"brokerAddrs":{{{addresses}}},"brokerName":"{name}","cluster":"c"}}')
        return ok(f'{{"brokerAddrTable":{{{",".join(entries)}}},"clusterAddrTable":{{}}}}'.encode())

    def _topics(self, client: Client, request: Request) -> Response:
        names = sorted({topic for broker in self.brokers.values() for topic in broker.topics})
        return ok(json.dumps({"topicList": names}).encode())

    def _delete(self, client: Client, request: Request) -> Response:
        for broker in self.brokers.values():
            broker.topics.pop(request.fields["topic"], None)
        return ok()

    def _put(self, client: Client, request: Request) -> Response:
        self.kv[request.fields["namespace"], request.fields["key"]] = request.fields["value"]
        return ok()

    def _get(self, client: Client, request: Request) -> Response:
        value = self.kv.get((request.fields["namespace"], request.fields["key"]))
        return Response(ResponseCode.QUERY_NOT_FOUND, "No config item") if value is None else ok(value=value)

    def _forget(self, client: Client, request: Request) -> Response:
        self.kv.pop((request.fields["namespace"], request.fields["key"]), None)
        return ok()

    def _list(self, client: Client, request: Request) -> Response:
        table = {key: value for (space, key), value in self.kv.items() if space == request.fields["namespace"]}
        return ok(json.dumps({"table": table}).encode()) if table else Response(ResponseCode.QUERY_NOT_FOUND)


def _broker(name: str, broker: Registered) -> dict[str, object]:
    addresses = {str(id): address for id, address in broker.addresses.items()}
    return {"cluster": "c", "brokerName": name, "brokerAddrs": addresses, "enableActingMaster": False}
