"""What name servers are asked: routes, topics, and their small store of keys and values.

What is written to one name server is only there: write to all of them (NameServers.tell_all).
"""

from __future__ import annotations

from popmq_remoting.codes import RequestCode
from popmq_remoting.requests import bodies
from popmq_remoting.wire.command import Request, Response, request


def route(topic: str) -> Request:
    """Answered by route.read_route; 17: no such topic, 1: it has just started."""
    return request(RequestCode.GET_ROUTEINFO_BY_TOPIC, topic=topic, acceptStandardJsonOnly=True)


def cluster_info() -> Request:
    """Answered by route.read_cluster."""
    return request(RequestCode.GET_BROKER_CLUSTER_INFO)


def all_topics() -> Request:
    """Answered by `topics`. An operator can switch it off."""
    return request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)


def topics_of_cluster(cluster: str) -> Request:
    """Answered by `topics`."""
    return request(RequestCode.GET_TOPICS_BY_CLUSTER, cluster=cluster)


def topics(answer: Response) -> list[str]:
    """Names of topics. Raises BadFormat, BrokerRefused."""
    return bodies.names(answer.expect(), "topicList")


def delete_topic(topic: str, cluster: str) -> Request:
    """Forgets the routes to a topic. For all name servers, after the brokers have deleted it."""
    return request(RequestCode.DELETE_TOPIC_IN_NAMESRV, topic=topic, clusterName=cluster)


def put_kv(namespace: str, key: str, value: str) -> Request:
    """For all name servers: each has a file of its own."""
    return request(RequestCode.PUT_KV_CONFIG, namespace=namespace, key=key, value=value)


def get_kv(namespace: str, key: str) -> Request:
    """Answered by the field `value`; 22: none."""
    return request(RequestCode.GET_KV_CONFIG, namespace=namespace, key=key)


def delete_kv(namespace: str, key: str) -> Request:
    """For all name servers."""
    return request(RequestCode.DELETE_KV_CONFIG, namespace=namespace, key=key)


def list_kv(namespace: str) -> Request:
    """Answered by bodies.table(answer, "table"); 22: none."""
    return request(RequestCode.GET_KVLIST_BY_NAMESPACE, namespace=namespace)
