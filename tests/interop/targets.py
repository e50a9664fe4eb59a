"""What the clients talk to: PopMQ in a process of its own, or a running server of the same protocol.

A running server is named by `ROCKETMQ_ENDPOINT=host:port`, and `ROCKETMQ_ADMIN` is the command of its administration
tool with what it needs to find the server (`mqadmin … -n host:port` without the verb): it makes topics and groups.
`ROCKETMQ_KILL` and `ROCKETMQ_START`, if given, end it without warning and start it again: for scenarios that do that,
one at a time (`python -m tests.interop.record --at-once 1 -k restart`).
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import shlex
import subprocess
import threading
from pathlib import Path
from typing import Protocol, Self

from harness.broker_process import BrokerError, BrokerProcess, own_port
from harness.stubs import Stubs
from popmq_proto.v1 import popmq_pb2 as pb

#: An access key: its name and its secret.
Key = tuple[str, str]


class Target(Protocol):
    """One server, and what an operator does to it. Names of topics and groups are new ones in each scenario."""

    #: Shortest lease that a receive may ask for.
    least_invisible_ms: int
    #: What not every server has: "restart", "priority", "lite", "access_keys", "tls", "popmq" for its own SDK,
    #: "gateways" where there is more than one.
    has: frozenset[str]

    @property
    def endpoint(self) -> str: ...

    @property
    def tls(self) -> tuple[str, Path]:
        """Where TLS is spoken, and the certificate in whose name."""

    @property
    def another(self) -> str:
        """The endpoint of a second server over the same messages. Only where it `has` "gateways"."""

    def topic(self, name: str, type: str) -> None: ...

    def group(self, name: str, fifo: bool, max_attempts: int, backoff_s: list[int]) -> None: ...

    def kill(self) -> None:
        """Without warning. Only where it `has` "restart"."""

    def start(self) -> Target:
        """After a kill: the same address, the same data."""

    def namespaced(self, namespace: str, name: str) -> str:
        """What an operator calls a name that a client gives in a namespace."""

    def close(self) -> None:
        """Ends what `start` started."""


class Operator:
    """An operator's calls of popmq.v1 to `admin`, HOST:PORT."""

    def __init__(self, admin: str, key: Key | None = None) -> None:
        """`key`: what the calls are signed with, where access keys are asked for."""
        self._admin, self._key = admin, key

    def topic(self, name: str, type: str) -> None:
        with Stubs(self._admin) as stubs:
            topic = pb.Topic(name=name, type=type)
            stubs.admin.CreateTopic(pb.CreateTopicRequest(topic=topic), timeout=10, metadata=self._signed())

    def group(self, name: str, fifo: bool, max_attempts: int, backoff_s: list[int]) -> None:
        backoff = pb.Backoff(delays_ms=[1000 * s for s in backoff_s])
        group = pb.Group(name=name, fifo=fifo, max_attempts=max_attempts, backoff=backoff)
        with Stubs(self._admin) as stubs:
            stubs.admin.CreateGroup(pb.CreateGroupRequest(group=group), timeout=10, metadata=self._signed())

    def namespaced(self, namespace: str, name: str) -> str:
        return f"{namespace}.{name}"

    def _signed(self) -> list[tuple[str, str]]:
        if self._key is None:
            return []
        name, secret = self._key
        moment = "20300101T000000Z"
        proof = hmac.new(secret.encode(), moment.encode(), "sha1").hexdigest()
        signed = f"MQv2-HMAC-SHA1 Credential={name}, SignedHeaders=x-mq-date-time, Signature={proof}"
        return [("x-mq-date-time", moment), ("authorization", signed)]


class PopMQ(Operator):
    """A process of PopMQ. `restart` kills it without warning and starts it on the same port and data."""

    least_invisible_ms = 2_000
    has = frozenset({"popmq", "restart", "priority", "lite", "access_keys", "tls"})

    def __init__(self, process: BrokerProcess, tls: tuple[int, Path], operator: Key | None = None) -> None:
        """`tls`: the port of TLS, and the certificate there. `operator`: a key with all rights, if there are keys."""
        super().__init__(process.endpoint, operator)
        self._process, self._tls = process, tls

    @classmethod
    def embedded(cls, data: Path, *flags: str, operator: Key | None = None) -> Self:
        """The broker with its own store."""
        port = own_port()
        process = BrokerProcess(data, "--tls-port", str(port), *flags)
        return cls(process, (port, data / "development-cert.pem"), operator)

    def start(self) -> Self:
        self._process.start()
        return self

    @property
    def endpoint(self) -> str:
        return self._process.endpoint

    @property
    def tls(self) -> tuple[str, Path]:
        port, certificate = self._tls
        return f"127.0.0.1:{port}", certificate

    @property
    def another(self) -> str:
        raise NotImplementedError("it is the only one")

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        with contextlib.suppress(BrokerError):  # it was killed then
            self._process.stop()


class Running:
    """A server that runs already and was started by somebody else."""

    least_invisible_ms = 10_000

    def __init__(self, endpoint: str, admin: list[str], kill: str = "", start: str = "") -> None:
        self._endpoint, self._admin, self._kill, self._start = endpoint, admin, kill, start
        self.has = frozenset({"restart"} if kill and start else ())
        self._one_at_a_time = threading.Lock()

    @property
    def endpoint(self) -> str:
        return self._endpoint

    @property
    def tls(self) -> tuple[str, Path]:
        raise NotImplementedError("its certificate is its own affair")

    @property
    def another(self) -> str:
        raise NotImplementedError("it is the only one")

    def topic(self, name: str, type: str) -> None:
        self._run("updateTopic", "-t", name, "-c", "DefaultCluster", "-a", f"+message.type={type}")

    def group(self, name: str, fifo: bool, max_attempts: int, backoff_s: list[int]) -> None:
        words = ["-g", name, "-c", "DefaultCluster", "-r", str(max_attempts - 1), "-o", str(fifo).lower()]
        if backoff_s:
            policy = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000 * s for s in backoff_s]}}
            words += ["-p", json.dumps(policy)]
        self._run("updateSubGroup", *words)

    def namespaced(self, namespace: str, name: str) -> str:
        return f"{namespace}%{name}"

    def kill(self) -> None:
        subprocess.run(shlex.split(self._kill), check=True, timeout=60)

    def start(self) -> Running:
        subprocess.run(shlex.split(self._start), check=True, timeout=120)
        return self

    def close(self) -> None:
        """Whoever started it ends it."""

    def _run(self, *words: str) -> None:
        for _ in range(3):  # the tool has seconds to start in, and all that runs here shares the machine
            with self._one_at_a_time:
                done = subprocess.run([*self._admin, *words], capture_output=True, text=True, check=False, timeout=60)
            if "success" in done.stdout:
                return
        raise AssertionError(f"{' '.join(words)}: {done.stdout}{done.stderr}")


def running() -> Running | None:
    """The server that the environment names."""
    told = os.environ.get
    endpoint = told("ROCKETMQ_ENDPOINT")
    if not endpoint:
        return None
    admin = shlex.split(os.environ["ROCKETMQ_ADMIN"])
    return Running(endpoint, admin, told("ROCKETMQ_KILL", ""), told("ROCKETMQ_START", ""))
