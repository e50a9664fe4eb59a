"""Which function of the rules runs which command or query of the writer thread.

Each takes the transaction and the object, and returns the answer or raises Refused. The answer of one with `begun_by`
is only the beginning: the event loop makes the whole (loop/in_pieces.py, loop/broker.py).
"""

from typing import Final

from popmq_server.contract import commands as ask
from popmq_server.embedded import operations as own
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
from popmq_server.embedded.rules.pulling import consume_mode, offsets, pull, send_back
from popmq_server.embedded.rules.retention.by_size import with_room
from popmq_server.embedded.rules.schedules import schedules
from popmq_server.embedded.rules.sending import (
    check_back,
    delay,
    end_transaction,
    send,
    settle,
    stages,
    transaction,
)
from popmq_server.embedded.rules.sending.placing import Placing
from popmq_server.embedded.rules.topics import consumer_groups, topic_lifecycle
from popmq_server.embedded.state.tx import Tx
from popmq_server.values.leased import Leased
from popmq_server.values.records import Topic


@with_room
def send_messages(tx: Tx, command: ask.Send) -> ask.Sent:
    """Stores messages: in lite topics, or in the queues of a topic."""
    topic = send.expect_topic(tx, command.topic)
    return send.send(tx, command, topic, _placing(topic))


def _placing(topic: Topic) -> type[Placing]:
    return LitePlacing if topic.type == "LITE" else Placing


def pop_messages(tx: Tx, command: ask.Pop) -> Leased:
    """Leases deliverable messages: under an owner's token, of lite topics, or of a topic."""
    if command.token:
        return token_pop.pop(tx, command, command.token)
    return pop.pop(tx, command) if command.lite is None else lite_pop.pop(tx, command)


def settle_messages(tx: Tx, command: ask.Settle) -> ask.Settled:
    """Ends deliveries and stores messages, all in one."""
    return settle.settle(tx, command, _placing)


BY_WRITER = (
    ask.Send.by(send_messages)
    | ask.Pop.begun_by(pop_messages)
    | ask.Ack.by(lease.ack)
    | ask.ChangeInvisibleTime.by(lease.change)
    | ask.Settle.begun_by(settle_messages)
    | ask.EndLease.by(end_lease.end)
    | ask.AttachOwner.by(owner.attach)
    | ask.RenewOwner.by(owner.renew)
    | ask.AckUpTo.by(owner.ack_up_to)
    | ask.ReleaseOwner.by(owner.release)
    | ask.RenewSession.begun_by(session_lease.renew)
    | own.NextRenewal.by(session_lease.renew)
    | ask.ReleaseSession.begun_by(session_lease.release)
    | own.NextRelease.by(session_lease.release)
    | ask.Available.by(token_pop.available)
    | ask.CreateTopic.by(topic_lifecycle.create_topic)
    | ask.UpdateTopic.by(topic_lifecycle.update_topic)
    | ask.DeleteTopic.by(topic_lifecycle.delete_topic)
    | ask.PurgeTopic.begun_by(purge.purge_topic)
    | own.NextPurge.by(purge.purge_topic)
    | ask.CreateGroup.by(consumer_groups.create_group)
    | ask.UpdateGroup.by(consumer_groups.update_group)
    | ask.DeleteGroup.by(consumer_groups.delete_group)
    | ask.SetFilter.by(subscription.set_filter)
    | ask.ResumeMessageGroup.begun_by(message_groups.resume)
    | ask.Pull.by(pull.pull)
    | ask.UpdateOffsets.begun_by(offsets.update)
    | ask.QueryOffsets.by(offsets.query)
    | own.NextOffsets.by(offsets.query)
    | ask.ResetOffsets.begun_by(offsets.reset)
    | ask.CloneOffsets.begun_by(offsets.clone)
    | ask.SetConsumeMode.begun_by(consume_mode.set_consume_mode)
    | ask.SendBack.by(send_back.send_back)
    | own.Attend.by(idle_subscriptions.attend)
    | own.Sweep.by(offsets.go_on)
    | ask.SyncLite.by(lite_sync.sync)
    | ask.Recall.by(delay.recall)
    | ask.EndTransaction.by(end_transaction.end)
    | ask.Stage.by(stages.stage)
    | ask.CommitBatch.by(stages.commit)
    | ask.DropStages.by(stages.drop)
    | own.CountChecks.by(check_back.count)
    | own.Listen.by(check_back.listen)
    | own.RedrivePiece.by(redrive.redrive)
    | own.DiscardPiece.by(redrive.discard)
    | own.FindDeadLetters.by(redrive.find)
    | ask.CreateSchedule.by(schedules.create)
    | ask.DeleteSchedule.by(schedules.delete)
    | ask.PauseSchedule.by(schedules.pause)
    | ask.RunSchedule.by(schedules.run)
    | own.LookUpPiece.by(look_up.look_up)
    | own.PeekPiece.by(pop.peek)
    | own.Trace.by(trace.trace)
    | own.WhyPiece.by(why.lives)
    | ask.queries.Topics.by(stats.topics)
    | own.TopicNames.by(stats.topic_names)
    | ask.queries.Groups.by(stats.groups)
    | ask.queries.GroupSettings.by(stats.group_settings)
    | ask.queries.Subscriptions.by(stats.subscriptions)
    | own.TermsOf.by(consume_mode.terms)
    | ask.queries.HeldBy.by(stats.held_by)
    | ask.queries.SessionHandle.by(session_lease.handle_of)
    | ask.queries.Leases.by(stats.leases)
    | ask.queries.Owners.by(stats.owners)
    | ask.queries.MessageGroups.by(message_groups.listed)
    | ask.queries.Delayed.by(delay.listed)
    | ask.queries.Transactions.by(transaction.listed)
    | ask.queries.Schedules.by(schedules.listed)
    | ask.queries.Browse.by(browse.browse)
    | own.StoreState.by(stats.store)
)

HANDLERS: Final = BY_WRITER.handlers
