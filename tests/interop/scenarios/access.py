"""Connections that need more than an address: TLS, access keys."""

from __future__ import annotations

from tests.interop.harness import Line
from tests.interop.scenarios import Outcome, scenario
from tests.interop.world import World, listened, receive, send, texts

#: Clients that speak TLS unless they are told not to, and check no certificate.
TLS_BY_DEFAULT = {"java"}


@scenario({"came": ["hello"], "heard": ["again"]}, needs=("tls", "push"), wants=("tls",))
def tls(world: World) -> Outcome:
    """Who has TLS by default connects with the defaults; others are given the development certificate as their root."""
    endpoint, certificate = world.target.tls
    driver = world.start(GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=str(certificate))
    topic, group, listeners = world.topic(), world.group(), world.group()
    how: Line = {"endpoint": endpoint, "tls": "default" if world.client in TLS_BY_DEFAULT else True}
    producer = world.producer(driver, topic, **how)
    consumer = world.simple(driver, topic, group, **how)
    send(driver, producer, topic, "hello")
    came = receive(driver, consumer)
    pushed = world.push(driver, topic, listeners, **how)
    send(driver, producer, topic, "again")
    heard = listened(driver, pushed, 2)
    return {"came": texts(came), "heard": texts(e["message"] for e in heard if e["message"]["body"] != came[0]["body"])}
