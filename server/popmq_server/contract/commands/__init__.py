"""Commands and queries of the contract, and their answers, in one module for each family.

They carry names and plain numbers, validated by the protocols that create them; the engine checks what needs its
state. All times are ms. Answers for entries are values or `Refused` objects, in the order of the request.

A new class is declared in its module (operations.py says how) and added to EveryOperation.
"""

from popmq_server.contract.commands import queries
from popmq_server.contract.commands.catalog import (
    CreatedGroup,
    CreatedTopic,
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    PurgeTopic,
    UpdateGroup,
    UpdateTopic,
)
from popmq_server.contract.commands.filtering import SetFilter
from popmq_server.contract.commands.inspection import (
    DeadLetterReasons,
    Discard,
    Failure,
    GroupLife,
    LifeEvent,
    LookedUp,
    LookUp,
    MessageLife,
    Peek,
    ReasonNumbers,
    ReasonsFound,
    Redrive,
    Redriven,
    Search,
    Searched,
    Why,
)
from popmq_server.contract.commands.lite import LiteSynced, SyncLite
from popmq_server.contract.commands.messages import (
    Ack,
    Acked,
    Change,
    Changed,
    ChangeInvisibleTime,
    EndLease,
    NewMessage,
    Place,
    Pop,
    Popped,
    PoppedRow,
    PopToken,
    Position,
    ReadRow,
    Renewed,
    ResumeMessageGroup,
    Send,
    Sent,
    Settle,
    Settled,
    bytes_of,
)
from popmq_server.contract.commands.owners import (
    AckedUpTo,
    AckUpTo,
    Attached,
    AttachOwner,
    Available,
    OwnerRenewed,
    Ready,
    ReleaseOwner,
    RenewOwner,
)
from popmq_server.contract.commands.pulling import (
    CloneOffsets,
    OffsetsOfQueue,
    Pull,
    Pulled,
    QueryOffsets,
    ResetOffsets,
    SendBack,
    SentBack,
    SetConsumeMode,
    UpdateOffsets,
)
from popmq_server.contract.commands.results import (
    ForgetResults,
    GetResults,
    GivenResult,
    MessageResult,
    ResultsFound,
    StoreResults,
)
from popmq_server.contract.commands.sessions import (
    AskClient,
    Assignment,
    AssignmentOf,
    Clients,
    Heartbeat,
    LockQueues,
    ReleaseSession,
    RenewSession,
    UnlockQueues,
)
from popmq_server.contract.commands.staging import BatchCommitted, CommitBatch, DropStages, Stage, StageName
from popmq_server.contract.commands.store import Piece, SetMaxSize
from popmq_server.contract.commands.timing import (
    Check,
    CreatedSchedule,
    CreateSchedule,
    DeleteSchedule,
    End,
    Ended,
    EndTransaction,
    PauseSchedule,
    Recall,
    Reschedule,
    Rescheduled,
    RunSchedule,
    TopicsOf,
)
from popmq_server.contract.operations import LANE_ACK, LANE_POP, LANE_SEND

#: What an engine may be asked to do: it has a handler for each of them, or lacks the capability.
EveryOperation = (
    Ack
    | AckUpTo
    | AskClient
    | AssignmentOf
    | AttachOwner
    | Available
    | queries.Brokers
    | queries.Browse
    | ChangeInvisibleTime
    | Clients
    | CloneOffsets
    | CommitBatch
    | CreateGroup
    | CreateSchedule
    | CreateTopic
    | DeadLetterReasons
    | queries.Delayed
    | DeleteGroup
    | DeleteSchedule
    | DeleteTopic
    | Discard
    | DropStages
    | EndLease
    | EndTransaction
    | ForgetResults
    | GetResults
    | queries.GroupSettings
    | queries.Groups
    | Heartbeat
    | queries.HeldBy
    | queries.Leases
    | LockQueues
    | LookUp
    | queries.MessageGroups
    | queries.Owners
    | PauseSchedule
    | Peek
    | Pop
    | Pull
    | PurgeTopic
    | QueryOffsets
    | Recall
    | Reschedule
    | Redrive
    | ReleaseOwner
    | ReleaseSession
    | RenewOwner
    | RenewSession
    | ResetOffsets
    | ResumeMessageGroup
    | RunSchedule
    | queries.Schedules
    | Search
    | Send
    | SendBack
    | queries.SessionHandle
    | SetConsumeMode
    | SetFilter
    | SetMaxSize
    | Settle
    | Stage
    | queries.StoreSize
    | StoreResults
    | queries.Subscriptions
    | SyncLite
    | queries.Topics
    | TopicsOf
    | queries.Transactions
    | UnlockQueues
    | UpdateGroup
    | UpdateOffsets
    | UpdateTopic
    | Why
)

__all__ = [
    "LANE_ACK",
    "LANE_POP",
    "LANE_SEND",
    "Ack",
    "AckUpTo",
    "Acked",
    "AckedUpTo",
    "AskClient",
    "Assignment",
    "AssignmentOf",
    "AttachOwner",
    "Attached",
    "Available",
    "BatchCommitted",
    "Change",
    "ChangeInvisibleTime",
    "Changed",
    "Check",
    "Clients",
    "CloneOffsets",
    "CommitBatch",
    "CreateGroup",
    "CreateSchedule",
    "CreateTopic",
    "CreatedGroup",
    "CreatedSchedule",
    "CreatedTopic",
    "DeadLetterReasons",
    "DeleteGroup",
    "DeleteSchedule",
    "DeleteTopic",
    "Discard",
    "DropStages",
    "End",
    "EndLease",
    "EndTransaction",
    "Ended",
    "EveryOperation",
    "Failure",
    "ForgetResults",
    "GetResults",
    "GivenResult",
    "GroupLife",
    "Heartbeat",
    "LifeEvent",
    "LiteSynced",
    "LockQueues",
    "LookUp",
    "LookedUp",
    "MessageLife",
    "MessageResult",
    "NewMessage",
    "OffsetsOfQueue",
    "OwnerRenewed",
    "PauseSchedule",
    "Peek",
    "Piece",
    "Place",
    "Pop",
    "PopToken",
    "Popped",
    "PoppedRow",
    "Position",
    "Pull",
    "Pulled",
    "PurgeTopic",
    "QueryOffsets",
    "ReadRow",
    "Ready",
    "ReasonNumbers",
    "ReasonsFound",
    "Recall",
    "Redrive",
    "Redriven",
    "ReleaseOwner",
    "ReleaseSession",
    "RenewOwner",
    "RenewSession",
    "Renewed",
    "Reschedule",
    "Rescheduled",
    "ResetOffsets",
    "ResultsFound",
    "ResumeMessageGroup",
    "RunSchedule",
    "Search",
    "Searched",
    "Send",
    "SendBack",
    "Sent",
    "SentBack",
    "SetConsumeMode",
    "SetFilter",
    "SetMaxSize",
    "Settle",
    "Settled",
    "Stage",
    "StageName",
    "StoreResults",
    "SyncLite",
    "TopicsOf",
    "UnlockQueues",
    "UpdateGroup",
    "UpdateOffsets",
    "UpdateTopic",
    "Why",
    "bytes_of",
    "queries",
]
