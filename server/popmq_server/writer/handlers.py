"""Which function runs which command: each takes the transaction and the command, and returns an answer or raises
Refused.
"""

from collections.abc import Callable
from typing import Any

from popmq_server.commands import (
    Ack,
    AckUpTo,
    AttachOwner,
    Attend,
    Available,
    ChangeInvisibleTime,
    CloneOffsets,
    CountChecks,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    EndTransaction,
    FindLetters,
    Listen,
    Look,
    LookUp,
    Peek,
    Pop,
    Pull,
    PurgeTopic,
    QueryOffsets,
    Recall,
    Redrive,
    ReleaseOwner,
    ReleaseSession,
    RenewOwner,
    RenewSession,
    ResetOffsets,
    ResumeMessageGroup,
    Send,
    SendBack,
    SetConsumeMode,
    SetFilter,
    Sweep,
    SyncLite,
    Trace,
    UpdateGroup,
    UpdateOffsets,
    UpdateTopic,
    Why,
)
from popmq_server.delivery import lease, owner, session_lease, subscription
from popmq_server.inspect import look_up, peek, stats, trace, why
from popmq_server.lite import lite_sync
from popmq_server.operate import expiry, message_groups, purge, redrive
from popmq_server.pulling import consume_mode, offsets, pull, send_back
from popmq_server.sending import check_back, delay, end_transaction, send
from popmq_server.state.tx import Tx
from popmq_server.topics import catalog
from popmq_server.writer import pop_routing

HANDLERS: dict[type, Callable[[Tx, Any], Any]] = {
    Send: send.send,
    Pop: pop_routing.popped,
    Ack: lease.ack,
    ChangeInvisibleTime: lease.change,
    AttachOwner: owner.attach,
    RenewOwner: owner.renew,
    AckUpTo: owner.ack_up_to,
    ReleaseOwner: owner.release,
    RenewSession: session_lease.renew,
    ReleaseSession: session_lease.release,
    Available: owner.available,
    CreateTopic: catalog.create_topic,
    UpdateTopic: catalog.update_topic,
    DeleteTopic: catalog.delete_topic,
    PurgeTopic: purge.purge_topic,
    CreateGroup: catalog.create_group,
    UpdateGroup: catalog.update_group,
    DeleteGroup: catalog.delete_group,
    SetFilter: subscription.set_filter,
    Look: stats.look,
    ResumeMessageGroup: message_groups.resume,
    Pull: pull.pull,
    UpdateOffsets: offsets.update,
    QueryOffsets: offsets.query,
    ResetOffsets: offsets.reset,
    CloneOffsets: offsets.clone,
    SetConsumeMode: consume_mode.set_consume_mode,
    SendBack: send_back.send_back,
    Attend: expiry.attend,
    Sweep: offsets.go_on,
    SyncLite: lite_sync.sync,
    Recall: delay.recall,
    EndTransaction: end_transaction.end,
    CountChecks: check_back.count,
    Listen: check_back.listen,
    Redrive: redrive.redrive,
    FindLetters: redrive.find,
    LookUp: look_up.look_up,
    Peek: peek.peek,
    Trace: trace.trace,
    Why: why.lives,
}
