"""Which function of the rules runs which command or query: each takes the transaction and the object, and returns the
answer or raises Refused.

An answer of another type belongs to a command that runs in pieces: the event loop makes the answer (loop/broker.py).
SetMaxSize has no row: it runs between two transactions (core.py).
"""

from typing import Final

from popmq_server.contract.commands import (
    Ack,
    AckUpTo,
    AttachOwner,
    Available,
    ChangeInvisibleTime,
    CloneOffsets,
    CommitBatch,
    CreateGroup,
    CreateSchedule,
    CreateTopic,
    DeleteGroup,
    DeleteSchedule,
    DeleteTopic,
    DropStages,
    EndLease,
    EndTransaction,
    PauseSchedule,
    Pop,
    Pull,
    PurgeTopic,
    QueryOffsets,
    Recall,
    ReleaseOwner,
    ReleaseSession,
    RenewOwner,
    RenewSession,
    ResetOffsets,
    ResumeMessageGroup,
    RunSchedule,
    Send,
    SendBack,
    Sent,
    SetConsumeMode,
    SetFilter,
    Stage,
    SyncLite,
    UpdateGroup,
    UpdateOffsets,
    UpdateTopic,
    queries,
)
from popmq_server.contract.operations import Handled
from popmq_server.embedded.operations import (
    Attend,
    CountChecks,
    DiscardPiece,
    EveryOwn,
    FindDeadLetters,
    Listen,
    LookUpPiece,
    NextOffsets,
    NextPurge,
    NextRelease,
    NextRenewal,
    PeekPiece,
    RedrivePiece,
    StoreState,
    Sweep,
    TermsOf,
    TopicNames,
    Trace,
    WhyPiece,
)
from popmq_server.embedded.rules.delivery import (
    lease,
    owner,
    pop,
    session_lease,
    subscription,
    token_pop,
)
from popmq_server.embedded.rules.inspect import browse, look_up, stats, trace, why
from popmq_server.embedded.rules.lite import lite_pop, lite_sync
from popmq_server.embedded.rules.lite.lite_send import LitePlacing
from popmq_server.embedded.rules.operate import end_lease, idle_subscriptions, message_groups, purge, redrive
from popmq_server.embedded.rules.pulling import (
    consume_mode,
    offsets,
    pull,
    send_back,
)
from popmq_server.embedded.rules.schedules import schedules
from popmq_server.embedded.rules.sending import check_back, delay, end_transaction, send, stages, transaction
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import consumer_groups, topic_lifecycle
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.leased import Leased


def send_messages(tx: Tx, command: Send) -> Sent:
    """Stores messages: in lite topics, or in the queues of a topic."""
    topic = send.expect_topic(tx, command.topic)
    return send.send(tx, command, topic, LitePlacing if topic.type == "LITE" else Placing)


def pop_messages(tx: Tx, command: Pop) -> Leased:
    """Leases deliverable messages: under an owner's token, of lite topics, or of a topic."""
    if command.token:
        return token_pop.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)


BY_WRITER = (
    Send.by(send_messages)
    | Pop.begun_by(pop_messages)
    | Ack.by(lease.ack)
    | ChangeInvisibleTime.by(lease.change)
    | EndLease.by(end_lease.end)
    | AttachOwner.by(owner.attach)
    | RenewOwner.by(owner.renew)
    | AckUpTo.by(owner.ack_up_to)
    | ReleaseOwner.by(owner.release)
    | RenewSession.begun_by(session_lease.renew)
    | NextRenewal.by(session_lease.renew)
    | ReleaseSession.begun_by(session_lease.release)
    | NextRelease.by(session_lease.release)
    | Available.by(token_pop.available)
    | CreateTopic.by(topic_lifecycle.create_topic)
    | UpdateTopic.by(topic_lifecycle.update_topic)
    | DeleteTopic.by(topic_lifecycle.delete_topic)
    | PurgeTopic.begun_by(purge.purge_topic)
    | NextPurge.by(purge.purge_topic)
    | CreateGroup.by(consumer_groups.create_group)
    | UpdateGroup.by(consumer_groups.update_group)
    | DeleteGroup.by(consumer_groups.delete_group)
    | SetFilter.by(subscription.set_filter)
    | ResumeMessageGroup.begun_by(message_groups.resume)
    | Pull.by(pull.pull)
    | UpdateOffsets.begun_by(offsets.update)
    | QueryOffsets.by(offsets.query)
    | NextOffsets.by(offsets.query)
    | ResetOffsets.begun_by(offsets.reset)
    | CloneOffsets.begun_by(offsets.clone)
    | SetConsumeMode.begun_by(consume_mode.set_consume_mode)
    | SendBack.by(send_back.send_back)
    | Attend.by(idle_subscriptions.attend)
    | Sweep.by(offsets.go_on)
    | SyncLite.by(lite_sync.sync)
    | Recall.by(delay.recall)
    | EndTransaction.by(end_transaction.end)
    | Stage.by(stages.stage)
    | CommitBatch.by(stages.commit)
    | DropStages.by(stages.drop)
    | CountChecks.by(check_back.count)
    | Listen.by(check_back.listen)
    | RedrivePiece.by(redrive.redrive)
    | DiscardPiece.by(redrive.discard)
    | FindDeadLetters.by(redrive.find)
    | CreateSchedule.by(schedules.create)
    | DeleteSchedule.by(schedules.delete)
    | PauseSchedule.by(schedules.pause)
    | RunSchedule.by(schedules.run)
    | LookUpPiece.by(look_up.look_up)
    | PeekPiece.by(pop.peek)
    | Trace.by(trace.trace)
    | WhyPiece.by(why.lives)
    | queries.Topics.by(stats.topics)
    | TopicNames.by(stats.topic_names)
    | queries.Groups.by(stats.groups)
    | queries.GroupSettings.by(stats.group_settings)
    | queries.Subscriptions.by(stats.subscriptions)
    | TermsOf.by(consume_mode.terms)
    | queries.HeldBy.by(stats.held_by)
    | queries.SessionHandle.by(session_lease.handle_of)
    | queries.Leases.by(stats.leases)
    | queries.Owners.by(stats.owners)
    | queries.MessageGroups.by(message_groups.listed)
    | queries.Delayed.by(delay.listed)
    | queries.Transactions.by(transaction.listed)
    | queries.Schedules.by(schedules.listed)
    | queries.Browse.by(browse.browse)
    | StoreState.by(stats.store)
)

#: A type checker refuses this line while an operation of the engine's own has no handler.
COMPLETE: Handled[EveryOwn] = BY_WRITER

HANDLERS: Final = BY_WRITER.handlers
