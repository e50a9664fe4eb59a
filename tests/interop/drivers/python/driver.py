"""The official Python client as a driver: lines of JSON in, lines of JSON out (the protocol: tests/interop/README.md).

    stdin ─▶ main: one thread a command ─▶ Driver.do_<verb> ─▶ rocketmq-python-client
    stdout ◀── answers and events, one line at a time

Runs in a virtual environment of its own, never in the one of the tests.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import sys
import threading
import time
from importlib.metadata import version
from typing import Any

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    LitePushConsumer,
    LiteSimpleConsumer,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
    TransactionResolution,
)
from rocketmq.grpc_protocol import FilterType

CAN = [
    "simple",
    "change",
    "push",
    "transaction",
    "recall",
    "priority",
    "tls",
    "access_key",
    "namespace",
    "lite_push",
    "lite_simple",
]
RESOLUTIONS = {
    "commit": TransactionResolution.COMMIT,
    "rollback": TransactionResolution.ROLLBACK,
    "unknown": TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED,
}
Line = dict[str, Any]


def _subscribe_lite(consumer: Any, lite_topic: str) -> None:
    """This client's quota is 0 until its settings come, and its simple consumer does not wait for them."""
    until = time.monotonic() + 10
    while True:
        try:
            consumer.subscribe_lite(lite_topic)
        except Exception as error:
            if "quota: 0" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(0.05)
        else:
            return


class Output:
    """Stdout, for lines of the protocol alone: what the client prints goes to stderr."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
        os.dup2(2, 1)
        self._lock = threading.Lock()

    def write(self, line: Line) -> None:
        with self._lock:
            self._file.write(json.dumps(line) + "\n")


OUTPUT = Output()


def now_ms() -> int:
    return int(time.time() * 1000)


def event(kind: str, name: str, **fields: Any) -> None:
    OUTPUT.write({"event": kind, "name": name, "at_ms": now_ms(), **fields})


def as_line(message: Message) -> Line:
    """What the client shows of a message; its zeros are protobuf's way to say nothing."""
    return {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "message_id": message.message_id,
        "group": message.message_group,
        "deliver_at_ms": message.delivery_timestamp or None,
        "priority": message.priority or None,
        "lite_topic": message.lite_topic,
        "born_at_ms": message.born_timestamp,
        "born_host": message.born_host,
        "attempt": message.delivery_attempt,
    }


def as_message(line: Line) -> Message:
    message = Message()
    message.topic = line["topic"]
    message.body = base64.b64decode(line["body"])
    if line.get("tag"):
        message.tag = line["tag"]
    for key in line.get("keys") or ():
        message.keys = key  # the client's setter adds
    for key, value in (line.get("properties") or {}).items():
        message.add_property(key, value)
    if line.get("group"):
        message.message_group = line["group"]
    if line.get("delay_ms") is not None:
        message.delivery_timestamp = int(time.time() + line["delay_ms"] / 1000)  # its unit is seconds
    if line.get("priority") is not None:
        message.priority = line["priority"]
    if line.get("lite_topic"):
        message.lite_topic = line["lite_topic"]
    return message


def as_filter(line: Line) -> FilterExpression:
    if line.get("sql"):
        return FilterExpression(line["sql"], FilterType.SQL)
    return FilterExpression(line.get("tag") or FilterExpression.TAG_EXPRESSION_SUB_ALL)


class Checker(TransactionChecker):  # type: ignore[misc]
    """Answers the n-th check of a message by the n-th answer."""

    def __init__(self, name: str, answers: str | list[str]) -> None:
        self.name = name
        self.answers = [answers] if isinstance(answers, str) else answers
        self.checks: dict[str, int] = {}

    def check(self, message: Message) -> Any:
        count = self.checks.get(message.message_id, 0)
        self.checks[message.message_id] = count + 1
        answer = self.answers[min(count, len(self.answers) - 1)]
        event("check", self.name, message=as_line(message), answer=answer)
        return RESOLUTIONS[answer]


class Listener(MessageListener):  # type: ignore[misc]
    """Takes its time and fails as told."""

    def __init__(self, line: Line) -> None:
        self.name = line["name"]
        self.fail = dict(line.get("fail") or {})
        self.take_ms = line.get("take_ms") or 0
        self.lock = threading.Lock()

    def consume(self, message: Message) -> ConsumeResult:
        body = bytes(message.body).decode(errors="replace")
        event("listening", self.name, message=as_line(message))
        take_ms = self.take_ms.get(body, 0) if isinstance(self.take_ms, dict) else self.take_ms
        time.sleep(take_ms / 1000)
        with self.lock:
            left = self.fail.get(body, 0)
            self.fail[body] = max(left - 1, 0) if left >= 0 else left
        event("listened", self.name, message=as_line(message), ok=left == 0)
        return ConsumeResult.SUCCESS if left == 0 else ConsumeResult.FAILURE


class Driver:
    """The clients that were started, and the messages that they hold."""

    def __init__(self) -> None:
        self.clients: dict[str, Any] = {}
        self.held: dict[str, Message] = {}
        self.numbers = itertools.count(1)

    def _start(self, line: Line, client: Any) -> Line:
        client.startup()
        self.clients[line["name"]] = client
        return {}

    def _configuration(self, line: Line) -> ClientConfiguration:
        credentials = Credentials(line.get("access_key") or "", line.get("secret_key") or "")
        return ClientConfiguration(line["endpoint"], credentials, namespace=line.get("namespace") or "")

    def do_producer(self, line: Line) -> Line:
        checker = Checker(line["name"], line["checker"]) if line.get("checker") else None
        topics = line.get("topics") or []
        return self._start(line, Producer(self._configuration(line), topics, checker, tls_enable=_tls(line)))

    def do_send(self, line: Line) -> Line:
        producer, message = self.clients[line["name"]], as_message(line["message"])
        if line.get("transaction") is None:
            return _receipt(producer.send(message))
        transaction = producer.begin_transaction()
        receipt = producer.send(message, transaction)
        if line["transaction"] == "commit":
            transaction.commit()
        elif line["transaction"] == "rollback":
            transaction.rollback()
        return _receipt(receipt)

    def do_recall(self, line: Line) -> Line:
        message_id = self.clients[line["name"]].recall_message(line["topic"], line["recall_handle"])
        return {"message_id": message_id}

    def do_simple(self, line: Line) -> Line:
        subscriptions = _subscriptions(line)
        await_s = max(line["await_ms"] // 1000, 1)
        configuration = self._configuration(line)
        consumer = SimpleConsumer(configuration, line["group"], subscriptions, await_s, tls_enable=_tls(line))
        return self._start(line, consumer)

    def do_receive(self, line: Line) -> Line:
        messages = self.clients[line["name"]].receive(line["max"], line["invisible_ms"] // 1000)
        return {"messages": [{**as_line(message), "held": self._hold(message)} for message in messages or ()]}

    def _hold(self, message: Message) -> str:
        name = f"m{next(self.numbers)}"
        self.held[name] = message
        return name

    def do_ack(self, line: Line) -> Line:
        self.clients[line["name"]].ack(self.held[line["held"]])
        return {}

    def do_change(self, line: Line) -> Line:
        seconds = line["invisible_ms"] // 1000
        self.clients[line["name"]].change_invisible_duration(self.held[line["held"]], seconds)
        return {}

    def do_push(self, line: Line) -> Line:
        options = {"consumption_thread_count": line["threads"]} if line.get("threads") else {}
        configuration, subscriptions = self._configuration(line), _subscriptions(line)
        tls = _tls(line)
        consumer = PushConsumer(configuration, line["group"], Listener(line), subscriptions, tls_enable=tls, **options)
        return self._start(line, consumer)

    def do_subscribe(self, line: Line) -> Line:
        self.clients[line["name"]].subscribe(line["topic"], as_filter(line.get("filter") or {}))
        return {}

    def do_unsubscribe(self, line: Line) -> Line:
        self.clients[line["name"]].unsubscribe(line["topic"])
        return {}

    def do_lite_push(self, line: Line) -> Line:
        configuration, tls = self._configuration(line), _tls(line)
        return self._lite(
            line, LitePushConsumer(configuration, line["group"], line["topic"], Listener(line), tls_enable=tls)
        )

    def do_lite_simple(self, line: Line) -> Line:
        await_s = max(line["await_ms"] // 1000, 1)
        configuration, tls = self._configuration(line), _tls(line)
        return self._lite(
            line, LiteSimpleConsumer(line["topic"], configuration, line["group"], await_s, tls_enable=tls)
        )

    def _lite(self, line: Line, consumer: Any) -> Line:
        self._start(line, consumer)
        for lite_topic in line.get("lite_topics") or ():
            _subscribe_lite(consumer, lite_topic)
        return {}

    def do_lite_subscribe(self, line: Line) -> Line:
        self.clients[line["name"]].subscribe_lite(line["lite_topic"])
        return {}

    def do_lite_unsubscribe(self, line: Line) -> Line:
        self.clients[line["name"]].unsubscribe_lite(line["lite_topic"])
        return {}

    def do_stop(self, line: Line) -> Line:
        self.clients.pop(line["name"]).shutdown()
        return {}


def _tls(line: Line) -> bool:
    return line.get("tls") is True


def _subscriptions(line: Line) -> dict[str, FilterExpression]:
    return {topic: as_filter(of) for topic, of in (line.get("subscriptions") or {}).items()}


def _receipt(receipt: Any) -> Line:
    return {
        "message_id": receipt.message_id,
        "transaction_id": receipt.transaction_id or None,
        "recall_handle": receipt.recall_handle,
        "offset": receipt.offset,
    }


def answer(driver: Driver, line: Line) -> None:
    try:
        ok = getattr(driver, f"do_{line['do']}")(line)
        OUTPUT.write({"id": line["id"], "ok": ok})
    except Exception as error:  # whatever the client raises is what the scenario asks for
        code = getattr(error, "code", None)
        code = code if isinstance(code, int) else None
        OUTPUT.write({"id": line["id"], "error": {"code": code, "kind": type(error).__name__, "message": str(error)}})


def main() -> None:
    driver = Driver()
    OUTPUT.write({"event": "hello", "client": "python", "version": version("rocketmq-python-client"), "can": CAN})
    for text in sys.stdin:
        line = json.loads(text)
        if line["do"] == "quit":
            OUTPUT.write({"id": line["id"], "ok": {}})
            break
        threading.Thread(target=answer, args=(driver, line), daemon=True).start()
    os._exit(0)  # clients that nobody stopped keep threads alive


if __name__ == "__main__":
    main()
