"""Connected clients: the state of each client, by its id.

    any call            heard           the client is alive, and its session leases are renewed
    Telemetry           settings, streams
    settings, a send    produces        it can answer checks of half messages of these topics, while it has a stream
    120 s of silence    forgotten, unless it has a stream; when there are too many, the longest silent first

Connections carry no state: clients open several of them, and some drop one and return. No call depends on this state
alone, since after a restart of the broker some clients never send their settings again.
"""

import asyncio
import contextlib
import heapq
import logging
import uuid
from collections import Counter

from popmq_proto.rocketmq import definition_pb2 as pb
from popmq_proto.rocketmq import service_pb2 as rpc
from popmq_server.clock import Clock
from popmq_server.contract.commands import Check
from popmq_server.contract.commands.sessions import ClientAnswer, ShownMessage
from popmq_server.contract.engine import CheckStreams, Engine, ProducerStream
from popmq_server.contract.rights import Need
from popmq_server.errors import Refused, client_not_found, invalid, unavailable
from popmq_server.monitoring.metrics import Metrics
from popmq_server.protocols.access import access_keys
from popmq_server.protocols.access.known_keys import Keys
from popmq_server.protocols.rocketmq import leases
from popmq_server.protocols.rocketmq.call import RocketmqCall, TelemetryStream
from popmq_server.protocols.rocketmq.messages import DeliveredRow, delivered
from popmq_server.protocols.rocketmq.names import resource_of
from popmq_server.protocols.traffic import Traffic

log = logging.getLogger("popmq.protocols")

#: A client without a call and without a stream is forgotten after this.
SILENCE_MS = 120_000
#: The number of clients remembered. Some programs make an id for each call.
CLIENTS_MAX = 20_000
#: The number of topics that one client may produce to, or read.
TOPICS_MAX = 1024
#: The permission for commands that concern no topic.
ANY_KEY = Need("known")
#: The number of topics that the clients of one access key may name in all, some 100 MB: 20 for each of CLIENTS_MAX.
#: Topics need not exist when a client names them.
NAMES_MAX = 400_000
#: How long the broker waits for a client's answer, in seconds.
ANSWER_S = 5.0
#: The number of answers that the broker holds back at a time.
HELD_MAX = 1024


class Client:
    """One client id as the broker knows it from its calls, settings and streams."""

    def __init__(self, client_id: str, key: str = "") -> None:
        self.client_id = client_id
        self.key = key  # the name of its access key
        self.is_forgotten = False
        self.language = ""
        self.heard_ms = 0
        self.renewed_ms = 0
        self.agreed = False  # it got settings from this broker
        self.type = 0  # a pb.ClientType, by its settings
        self.timeout_ms = 0  # of its calls, 0 = unknown
        self.group = ""  # of a consumer, in the engine's form
        self.topics: frozenset[str] = frozenset()  # that it reads
        self.outlets: list[TelemetryStream] = []
        self.is_lite = False  # it has subscribed to lite topics
        self.renews = False  # it receives with auto_renew: a push consumer
        self.polls: set[asyncio.Task[object]] = set()  # its receives that wait
        self.gone = False  # it said goodbye
        self.produces: set[str] = set()
        self.answering: dict[str, tuple[ProducerStream, asyncio.Task[None]]] = {}


class ConnectedClients:
    """The clients that are connected to one event loop."""

    def __init__(self, engine: CheckStreams, clock: Clock, keys: Keys | None = None) -> None:
        self._engine = engine
        self._keys = keys
        self._clock = clock
        self._clients: dict[tuple[str, str], Client] = {}
        #: How many topics the remembered clients of each access key name.
        self._names: Counter[str] = Counter()
        self._swept_ms = 0
        self._renewals = leases.Renewals(engine)
        #: By nonce, the client that was asked, and its answer.
        self._questions: dict[str, tuple[Client, asyncio.Future[tuple[str, str]]]] = {}
        #: Set when the broker stops: streams then end in order.
        self.closed = asyncio.Event()
        self._held = 0

    def heard(self, call: RocketmqCall) -> Client:
        """Records that the client is alive, and renews its session leases."""
        now_ms = self._clock.now_ms()
        name = _named(call.client_id)
        client = self._clients.get(name)
        if client is None:
            self._make_room()
            client = self._clients[name] = Client(call.client_id, name[0])
        client.language, client.heard_ms = call.language, now_ms
        if now_ms - client.renewed_ms >= leases.EVERY_MS:
            client.renewed_ms = now_ms
            self._renewals.begin(call.client_id)
        if now_ms - self._swept_ms > SILENCE_MS:
            self._sweep(now_ms)
        return client

    async def renewed(self, client_id: str) -> None:
        """Returns when the renewal of this client's leases, if one is under way, has ended."""
        await self._renewals.over(client_id)

    async def hold(self, ms: int) -> None:
        """Holds an answer back, for less time if the broker stops."""
        if ms <= 0 or self._held >= HELD_MAX:
            return
        self._held += 1
        try:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.closed.wait(), ms / 1000)
        finally:
            self._held -= 1

    def _sweep(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        silent = [name for name, client in self._clients.items() if now_ms - client.heard_ms > SILENCE_MS]
        for name in silent:
            if not self._clients[name].outlets:
                self._drop(name)

    def _make_room(self) -> None:
        """Forgets the longest silent clients without a stream: many at once, so that a flood of new ids does not scan
        all clients each time.

        A forgotten client that returns has lost nothing that a call needs; it sends its settings again by itself.
        """
        if len(self._clients) >= CLIENTS_MAX:
            silent = [name for name, client in self._clients.items() if not client.outlets]
            for name in heapq.nsmallest(CLIENTS_MAX // 16 + 1, silent, lambda name: self._clients[name].heard_ms):
                self._drop(name)

    def forget(self, client_id: str) -> Client | None:
        """The client said goodbye; its streams end by themselves, its polls now."""
        client = self._drop(_named(client_id))
        if client is not None:
            self._stop_answering(client)
            client.gone = True
            for poll in client.polls:
                poll.cancel()
        return client

    def _drop(self, name: tuple[str, str]) -> Client | None:
        """Removes a client with the names of its topics, which are counted no more: it may still have a stream."""
        client = self._clients.pop(name, None)
        if client is not None:
            client.is_forgotten = True
            self._names[client.key] -= len(client.produces) + len(client.topics)
            if not self._names[client.key]:
                del self._names[client.key]
            client.produces, client.topics = set(), frozenset()
        return client

    def check_names(self, client: Client, more: int) -> None:
        """Raises Refused RATE_LIMITED when the clients of its key would name too many topics with `more` names."""
        if more > 0 and self._names[client.key] + more > NAMES_MAX:
            raise Refused(
                "RATE_LIMITED",
                f"the clients of one access key may name {NAMES_MAX:,} topics in all",
                field="settings",
                action="let each client name only the topics that it uses, and close clients that are not used",
            )

    def reads(self, client: Client, group: str, topics: frozenset[str]) -> None:
        """The client consumes these topics. Raises Refused RATE_LIMITED."""
        more = len(topics) - len(client.topics)
        self.check_names(client, more)
        client.group = group
        if not client.is_forgotten:
            self._names[client.key] += more
            client.topics = topics

    def held_by(self, holder: str) -> Client | None:
        """The client of a holder name (see leases.holder), or None."""
        key, _, name = holder.partition("/")
        return self._clients.get(("", holder)) or self._clients.get((key, name))

    async def tell(self, client: Client, command: rpc.TelemetryCommand) -> None:
        """Sends a command to a client. Raises Refused UNAVAILABLE when none of its streams takes it."""
        await _tell(client, command, self._outlets(client))

    # ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def attach(self, client: Client, outlet: TelemetryStream) -> None:
        """Registers an open Telemetry stream."""
        client.outlets.append(outlet)
        for topic in sorted(client.produces):
            await self._answer_for(client, topic)

    def detach(self, client: Client, outlet: TelemetryStream) -> None:
        """Removes an ended stream. Without a stream the client gets no checks."""
        outlet.close()
        client.outlets.remove(outlet)
        if not client.outlets:
            self._stop_answering(client)

    def _outlets(self, client: Client, need: Need = ANY_KEY) -> list[TelemetryStream]:
        """The streams that may get a command: a key may have been removed, or replaced, since it opened its stream."""
        keys = self._keys
        return [
            outlet
            for outlet in client.outlets
            if outlet.key is None or (keys is not None and keys.holds(outlet.key) and outlet.key.may(need))
        ]

    # ── Requests of an operator ──────────────────────────────────────────────────────────────────────────────────

    async def ask(self, client_id: str, shown: ShownMessage | None) -> ClientAnswer:
        """Whether a push consumer could handle a message, whose topic its key must allow to read; without one, the
        stacks of a client's threads. Raises Refused CLIENT_NOT_FOUND, UNAVAILABLE.
        """
        nonce = uuid.uuid4().hex
        if shown is None:
            stack = rpc.PrintThreadStackTraceCommand(nonce=nonce)
            command = rpc.TelemetryCommand(print_thread_stack_trace_command=stack)
            return await self._question(client_id, "", nonce, command)
        row = DeliveredRow(shown.data, shown.stored_ms, shown.queue, shown.offset, 1)
        message = delivered(row, resource_of(shown.topic), "NORMAL")
        verify = rpc.VerifyMessageCommand(nonce=nonce, message=message)
        return await self._question(client_id, shown.topic, nonce, rpc.TelemetryCommand(verify_message_command=verify))

    async def _question(self, client_id: str, topic: str, nonce: str, command: rpc.TelemetryCommand) -> ClientAnswer:
        client, outlets = self._asked(client_id, topic)
        answer = asyncio.get_running_loop().create_future()
        self._questions[nonce] = client, answer
        try:
            await _tell(client, command, outlets)
            return ClientAnswer(*await asyncio.wait_for(answer, ANSWER_S))
        except TimeoutError:
            raise unavailable(f"client {client_id!r} gave no answer in {ANSWER_S:g} s") from None
        finally:
            del self._questions[nonce]

    def _asked(self, client_id: str, topic: str) -> tuple[Client, list[TelemetryStream]]:
        """The client with this id, and its streams. Clients of different access keys may have the same id; those that
        may not receive the topic are left out.
        """
        found = []
        for client in self._clients.values():
            if client.client_id == client_id and client.outlets:
                need = Need("receive", topic, client.group) if topic else ANY_KEY
                if outlets := self._outlets(client, need):
                    found.append((client, outlets))
        if not found:
            raise client_not_found(client_id, topic if self._keys else "")
        if len(found) > 1:
            raise invalid(
                f"{len(found)} clients of different access keys have the id {client_id!r}",
                field="client_id",
                action="give each client an id of its own",
            )
        return found[0]

    def answered(self, client: Client, command: rpc.TelemetryCommand) -> None:
        """Passes an answer to the call that waits for it, if it is of the client that was asked. One client answers a
        verification with the command itself.
        """
        kind = command.WhichOneof("command")
        nonce = getattr(getattr(command, kind), "nonce", "") if kind else ""
        asked, future = self._questions.get(nonce, (None, None))
        if asked is client and future is not None and not future.done():
            text = command.thread_stack_trace.thread_stack_trace or command.status.message
            known = command.status.code in pb.Code.values()
            future.set_result((pb.Code.Name(command.status.code) if known else str(command.status.code), text))

    # ── Half messages ────────────────────────────────────────────────────────────────────────────────────────────

    async def produces(self, client: Client, topic: str) -> None:
        """The client publishes to this topic, so it may get checks of the topic's half messages."""
        if topic not in client.produces:
            full = len(client.produces) >= TOPICS_MAX or self._names[client.key] >= NAMES_MAX
            if full or client.is_forgotten:
                return
            client.produces.add(topic)
            self._names[client.key] += 1
        await self._answer_for(client, topic)  # again: the topic may have been created since the last attempt

    async def _answer_for(self, client: Client, topic: str) -> None:
        if topic in client.answering or not client.outlets:
            return
        try:
            stream = await self._engine.join(client.client_id, (topic,))
        except Refused:
            return  # not a topic of half messages, or no topic
        if topic in client.answering or not client.outlets:
            stream.close()
            return
        client.answering[topic] = stream, asyncio.ensure_future(self._ask(client, stream))

    def _stop_answering(self, client: Client) -> None:
        for stream, task in client.answering.values():
            stream.close()
            task.cancel()
        client.answering.clear()

    async def _ask(self, client: Client, stream: ProducerStream) -> None:
        """Sends checks to the client; a check counts once it was written.

        When the client cannot be reached it leaves, so that other producers get the checks of its topic; it joins again
        with its next stream, or its next call about the topic.
        """
        try:
            async for check in stream:
                if not client.outlets:
                    break
                await self.tell(client, _check(check, self._clock.now_ms()))
        except Refused:
            pass  # the broker stops
        except Exception:
            log.debug("client %s was not asked", client.client_id, exc_info=True)
        finally:
            stream.close()
            for topic in stream.topics:
                if client.answering.get(topic, (None,))[0] is stream:
                    del client.answering[topic]


def _named(client_id: str) -> tuple[str, str]:
    """Ids can be guessed, so the same id under another access key is another client."""
    key = access_keys.caller()
    return key.name if key else "", client_id


async def _tell(client: Client, command: rpc.TelemetryCommand, outlets: list[TelemetryStream]) -> None:
    """Sends a command on the newest stream that takes it. Raises Refused UNAVAILABLE when none does.

    After a reconnect a dead stream may exist next to a live one, and the dead one may be the newer.
    """
    for outlet in reversed(outlets):
        try:
            await outlet.write(command)
        except Exception:
            log.debug("a stream of client %s is broken", client.client_id, exc_info=True)
        else:
            return
    raise unavailable(f"no stream of client {client.client_id!r} can be written to")


def _check(check: Check, now_ms: int) -> rpc.TelemetryCommand:
    """The check, with the whole message: clients read it as one that they receive."""
    row = DeliveredRow(check.data, now_ms, 0, 0, 1)
    message = delivered(row, resource_of(check.topic), "TRANSACTION")
    command = rpc.RecoverOrphanedTransactionCommand(message=message, transaction_id=check.transaction)
    return rpc.TelemetryCommand(recover_orphaned_transaction_command=command)


class RocketmqServicer:
    """The base of the services: the engine, the clients, and `native`, which counts for both protocols."""

    def __init__(self, engine: Engine, clients: ConnectedClients, traffic: Traffic, metrics: Metrics) -> None:
        self._engine = engine
        self._clients = clients
        self._traffic = traffic
        self._metrics = metrics
