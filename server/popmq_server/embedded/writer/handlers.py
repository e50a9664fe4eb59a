"""Which function runs which command: each takes the transaction and the command, and returns an answer or raises
Refused.
"""

from collections.abc import Callable
from typing import Any

from popmq_server.contract.commands import (
    Ack,
    AckUpTo,
    AttachOwner,
    Attend,
    Available,
    ChangeInvisibleTime,
    CloneOffsets,
    CommitBatch,
    CountChecks,
    CreateGroup,
    CreateSchedule,
    CreateTopic,
    DeleteGroup,
    DeleteSchedule,
    DeleteTopic,
    DiscardPiece,
    DropStages,
    EndLease,
    EndTransaction,
    FindDeadLetters,
    Listen,
    LookUpPiece,
    PauseSchedule,
    PeekPiece,
    Pop,
    Pull,
    PurgeTopic,
    QueryOffsets,
    Recall,
    RedrivePiece,
    ReleaseOwner,
    ReleaseSession,
    RenewOwner,
    RenewSession,
    ResetOffsets,
    ResumeMessageGroup,
    RunSchedule,
    Send,
    SendBack,
    SetConsumeMode,
    SetFilter,
    Stage,
    Sweep,
    SyncLite,
    Trace,
    UpdateGroup,
    UpdateOffsets,
    UpdateTopic,
    WhyPiece,
    queries,
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
from popmq_server.embedded.rules.operate import end_lease, idle_subscriptions, message_groups, purge, redrive
from popmq_server.embedded.rules.pulling import (
    consume_mode,
    offsets,
    pull,
    send_back,
)
from popmq_server.embedded.rules.schedules import schedules
from popmq_server.embedded.rules.sending import check_back, delay, end_transaction, send, stages, transaction
from popmq_server.embedded.rules.topics import consumer_groups, topic_lifecycle
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.leased import Leased


def pop_messages(tx: Tx, command: Pop) -> Leased:
    """Leases deliverable messages: under an owner's token, of lite topics, or of a topic."""
    if command.token:
        return token_pop.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)


HANDLERS: dict[type, Callable[[Tx, Any], Any]] = {
    Send: send.send,
    Pop: pop_messages,
    Ack: lease.ack,
    ChangeInvisibleTime: lease.change,
    EndLease: end_lease.end,
    AttachOwner: owner.attach,
    RenewOwner: owner.renew,
    AckUpTo: owner.ack_up_to,
    ReleaseOwner: owner.release,
    RenewSession: session_lease.renew,
    ReleaseSession: session_lease.release,
    Available: token_pop.available,
    CreateTopic: topic_lifecycle.create_topic,
    UpdateTopic: topic_lifecycle.update_topic,
    DeleteTopic: topic_lifecycle.delete_topic,
    PurgeTopic: purge.purge_topic,
    CreateGroup: consumer_groups.create_group,
    UpdateGroup: consumer_groups.update_group,
    DeleteGroup: consumer_groups.delete_group,
    SetFilter: subscription.set_filter,
    ResumeMessageGroup: message_groups.resume,
    Pull: pull.pull,
    UpdateOffsets: offsets.update,
    QueryOffsets: offsets.query,
    ResetOffsets: offsets.reset,
    CloneOffsets: offsets.clone,
    SetConsumeMode: consume_mode.set_consume_mode,
    SendBack: send_back.send_back,
    Attend: idle_subscriptions.attend,
    Sweep: offsets.go_on,
    SyncLite: lite_sync.sync,
    Recall: delay.recall,
    EndTransaction: end_transaction.end,
    Stage: stages.stage,
    CommitBatch: stages.commit,
    DropStages: stages.drop,
    CountChecks: check_back.count,
    Listen: check_back.listen,
    RedrivePiece: redrive.redrive,
    DiscardPiece: redrive.discard,
    FindDeadLetters: redrive.find,
    CreateSchedule: schedules.create,
    DeleteSchedule: schedules.delete,
    PauseSchedule: schedules.pause,
    RunSchedule: schedules.run,
    LookUpPiece: look_up.look_up,
    PeekPiece: pop.peek,
    Trace: trace.trace,
    WhyPiece: why.lives,
    queries.Topics: stats.topics,
    queries.TopicNames: stats.topic_names,
    queries.Groups: stats.groups,
    queries.GroupSettings: stats.group_settings,
    queries.Subscriptions: stats.subscriptions,
    queries.TermsOf: consume_mode.terms,
    queries.HeldBy: stats.held_by,
    queries.SessionHandle: session_lease.handle_of,
    queries.Leases: stats.leases,
    queries.Owners: stats.owners,
    queries.MessageGroups: message_groups.listed,
    queries.Delayed: delay.listed,
    queries.Transactions: transaction.listed,
    queries.Schedules: schedules.listed,
    queries.Browse: browse.browse,
    queries.Store: stats.store,
}
