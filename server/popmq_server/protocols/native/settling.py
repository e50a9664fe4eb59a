"""popmq.v1: Settle. rules/sending/settle.py has what it does; docs/settle.md describes it."""

from collections.abc import Sequence

from popmq_proto.store.store_pb2 import SendView, SettleView
from popmq_proto.v1 import popmq_pb2 as pb
from popmq_server.contract.commands import Change, NewMessage, Send, Settle, Settled
from popmq_server.errors import Refused, invalid
from popmq_server.protocols import validation
from popmq_server.protocols.entries import validated
from popmq_server.protocols.native import native, requests, responses
from popmq_server.protocols.traffic import Traffic
from popmq_server.values.message import check_messages_total, check_range, length_prefixed


class SettlingService(native.NativeServicer):
    """Ends deliveries and sends messages in one commit."""

    async def Settle(self, raw: bytes) -> bytes:
        """Does all of a request, or refuses it with the field of the first problem."""
        command = read_settle(raw)
        with self._metrics.limits(command.group, command.sends[0].topic if len(command.sends) == 1 else ""):
            answer = await self._engine.execute(command)
        self._traffic.served("Settle", command.group)
        for send in command.sends:
            self._traffic.recent.began("sends", "", send.topic)
        if not answer.duplicate:
            _moved(self._traffic, command, answer)
        return _settled(command, answer)


def _moved(traffic: Traffic, command: Settle, answer: Settled) -> None:
    """Counts the messages as those of Ack, ChangeInvisibleTime and Send."""
    for topic, done in answer.topics.items():
        traffic.moved("Ack", command.group, topic, done)
    traffic.moved("ChangeInvisibleTime", command.group, "", len(command.changes))
    for send, sent in zip(command.sends, answer.sent, strict=True):
        sizes = native.stored_sizes(send, sent)
        traffic.moved("Send", "", send.topic, len(sizes), sum(sizes))


def _settled(command: Settle, answer: Settled) -> bytes:
    """A SettleResponse, joined from SendResponses: 1 sends · 2 duplicate."""
    sends = [responses.sent(send, sent) for send, sent in zip(command.sends, answer.sent, strict=True)]
    parts = [b"\x0a" + part for part in length_prefixed(sends)]
    return b"".join([*parts, b"\x10\x01"] if answer.duplicate else parts)


# ── Requests ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_settle(whole: bytes) -> Settle:
    """The command of a Settle. The first invalid entry or message refuses it."""
    view = requests.read(SettleView, whole, pb.SettleRequest.DESCRIPTOR.full_name)
    _check_entries(len(view.handles), len(view.changes), len(view.sends))
    given = [requests.read(pb.DeliveryResult, raw) for raw in view.results]
    results = requests.given_results(given, len(view.handles))
    producer = native.read_producer(view.producer_id, view.request_number)
    changes = [requests.read(pb.InvisibleTimeChange, each) for each in view.changes]
    return Settle(
        validation.group_name(view.group),
        tuple(view.handles),
        tuple([_change(each, f"changes[{index}]") for index, each in enumerate(changes)]),
        _sends(view.sends, producer, view.request_number),
        producer,
        view.request_number,
        results,
        sum([len(each.body) for each in results]),
    )


def _check_entries(handles: int, changes: int, sends: int) -> None:
    check_range(handles, "handles", 0, validation.ENTRIES_MAX)
    check_range(handles + changes, "changes" if changes else "handles", 1, validation.ENTRIES_MAX)
    check_range(sends, "sends", 0, validation.ENTRIES_MAX)


def _change(entry: pb.InvisibleTimeChange, field: str) -> Change:
    """A release or a reject: what stays leased does not end."""
    change = native.read_change(entry, field)
    if change.kind == "extend":
        raise invalid(
            "a Settle ends deliveries, and cannot extend one",
            field=f"{field}.extend",
            action="extend its lease in a call of its own",
        )
    return change


def _sends(raws: Sequence[bytes], producer: str, number: int) -> tuple[Send, ...]:
    """The messages of each topic. Their limits are those of one Send."""
    views = [requests.read(SendView, raw, pb.SettleSend.DESCRIPTOR.full_name) for raw in raws]
    sizes = [sum(map(len, view.messages)) for view in views]
    if views:
        count = sum(len(view.messages) for view in views)
        with requests.Paths(messages="sends"):
            check_messages_total(count, sum(sizes), validation.ENTRIES_MAX, validation.SEND_BYTES_MAX)
    found: dict[str, Send] = {}
    for index, (raw, view, size) in enumerate(zip(raws, views, sizes, strict=True)):
        field = f"sends[{index}]"
        with requests.Paths(topic=f"{field}.topic", messages=f"{field}.messages"):
            topic = validation.sent_name(view.topic)
            check_range(len(view.messages), "messages", 1, validation.ENTRIES_MAX)
        if topic in found:
            raise invalid(
                f"topic {topic!r} occurs twice", field=f"{field}.topic", action="put all its messages into one entry"
            )
        entries = validated(pb.SettleSend, raw, list(view.messages), producer and f"{producer} {topic}", number)
        found[topic] = Send(topic, _accepted(entries, field), bytes=size)
    return tuple(found.values())


def _accepted(entries: tuple[NewMessage | Refused, ...], field: str) -> tuple[NewMessage, ...]:
    """The messages. Raises the first refusal of one, and refuses half messages."""
    accepted: list[NewMessage] = []
    for index, entry in enumerate(entries):
        if isinstance(entry, Refused):
            entry.field = f"{field}.{entry.field}"
            raise entry
        if entry.extra is not None and entry.extra.transaction:
            raise invalid(
                "a Settle is a transaction of its own, and sends no half messages",
                field=f"{field}.messages[{index}].transaction",
                action="unset transaction",
            )
        accepted.append(entry)
    return tuple(accepted)
