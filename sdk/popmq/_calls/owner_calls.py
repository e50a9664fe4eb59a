"""Requests of owners, as pure functions: durable leases, sealed tokens, positions."""

from collections.abc import Collection
from typing import Any

from popmq._calls.admin_calls import given_start
from popmq._calls.deliveries import columns_asked, read_columns
from popmq._calls.inspection_calls import read_group_stats
from popmq._given.fields import ms
from popmq._transport.call import Call
from popmq.duration import Duration
from popmq.owner import Attachment, Availability, Finished, OwnerLease, Position, SealedBatch, Token
from popmq.topic import Start
from popmq_proto.v1 import popmq_pb2 as pb


def attach_owner(
    group: str, owner: str, lease: Duration, topic: str, start: Start | None, create_group: bool
) -> Call[Attachment]:
    """Creates or takes over an owner; older generations are fenced."""
    request = pb.AttachOwnerRequest(
        group=group,
        owner=owner,
        lease_ms=ms(lease, "lease"),
        topic=topic,
        start=None if start is None else given_start(start),
        create_group=create_group,
    )
    return Call(
        "Broker.AttachOwner",
        request,
        lambda reply, _: Attachment(reply.generation, reply.acked_epoch, reply.queues),
        "settle",
    )


def renew_owner(group: str, owner: str, generation: int, lease: Duration) -> Call[OwnerLease]:
    """Renews the lease of everything that the owner holds."""
    return Call(
        "Broker.RenewOwner",
        pb.RenewOwnerRequest(group=group, owner=owner, generation=generation, lease_ms=ms(lease, "lease")),
        lambda reply, _: OwnerLease(reply.tokens, reply.messages, reply.lease_until_ms),
        "settle",
    )


def ack_up_to(group: str, owner: str, generation: int, epoch: int) -> Call[Finished]:
    """Finishes all epochs up to this one; reads how many messages that finished, and how many were torn."""
    return Call(
        "Broker.AckUpTo",
        pb.AckUpToRequest(group=group, owner=owner, generation=generation, epoch=epoch),
        lambda reply, _: Finished(reply.acked, reply.torn),
        "settle",
    )


def release_owner(group: str, owner: str, generation: int) -> Call[int]:
    """Ends the owner's lease now; reads how many messages it held."""
    return Call(
        "Broker.ReleaseOwner",
        pb.ReleaseOwnerRequest(group=group, owner=owner, generation=generation),
        lambda reply, _: reply.released,
        "settle",
    )


def pop_sealed(
    topic: str,
    group: str,
    token: Token,
    *,
    max_messages: int,
    max_bytes: int,
    lease: Duration,
    client_id: str,
    columns: Collection[str] | None = None,
    filter: pb.Filter | None = None,
) -> Call[SealedBatch]:
    """Pops with a token, as columns. The token makes every retry return the same set: it needs no attempt id."""
    request = pb.PopRequest(
        topic=topic,
        group=group,
        max_messages=max_messages,
        max_bytes=max_bytes,
        invisible_ms=ms(lease, "lease"),
        client_id=client_id,
        token=pb.Token(
            owner=token.owner,
            generation=token.generation,
            epoch=token.epoch,
            part=token.part,
            chunk=token.chunk,
            share=token.share,
            upto=None if token.upto is None else pb.Position(queues=token.upto.queues, retry=token.upto.retry),
            topic_id=token.topic_id,
        ),
        format=pb.FORMAT_COLUMNS,
        filter=filter,
        columns=columns_asked(columns),
    )
    return Call("Broker.Pop", request, _read_sealed, "pop")


def _read_sealed(reply: pb.PopResponse, _retried: bool) -> SealedBatch:
    sealed = reply.sealed
    return SealedBatch(
        read_columns(reply.columns), sealed.count, sealed.end, sealed.torn_stolen, sealed.torn_lost, reply.replay
    )


def wait_available(
    topic: str, group: str, min_ready: int, wait: float, upto: Position | None, filter: pb.Filter | None = None
) -> Call[Availability]:
    """Waits until something is deliverable; tells how far a bounded read may go."""

    def read(reply: Any, _retried: bool) -> Availability:
        now = Position(dict(reply.upto.queues), reply.upto.retry)
        return Availability(reply.ready, now, read_group_stats(reply.stats), reply.topic_id)

    request = pb.WaitAvailableRequest(topic=topic, group=group, min_ready=min_ready, wait_ms=ms(wait), filter=filter)
    if upto is not None:
        request.upto.CopyFrom(pb.Position(queues=upto.queues, retry=upto.retry))
    return Call("Broker.WaitAvailable", request, read, "pop", wait)
