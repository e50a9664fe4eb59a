"""Commands of the engine: one frozen class for each command, and for each structured answer (after the →).

Commands carry names and plain numbers, validated by the modules that create them (api/); the engine checks what needs
its state. All times are ms. Answers for entries are values or `Refused` objects, in the order of the request.

One module for each family. Each class declares its lane (lanes.py); handlers.py maps it to its function.
"""

from typing import Any

from popmq_server.commands.catalog import (
    CreateGroup,
    CreateTopic,
    DeleteGroup,
    DeleteTopic,
    PurgeTopic,
    UpdateGroup,
    UpdateTopic,
)
from popmq_server.commands.filtering import SetFilter
from popmq_server.commands.inspection import Failure, LookedUp, LookUp, Peek, Redrive, Redriven, Search, Searched, Why
from popmq_server.commands.lanes import LANE_ACK, LANE_POP, LANE_SEND, LANES, NEED_ROOM
from popmq_server.commands.lite import LiteSynced, SyncLite
from popmq_server.commands.messages import (
    Ack,
    Acked,
    Change,
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
    bytes_of,
)
from popmq_server.commands.owners import AckUpTo, AttachOwner, Available, ReleaseOwner, RenewOwner
from popmq_server.commands.pieces import (
    DiscardPiece,
    FindDeadLetters,
    LookedUpPiece,
    LookUpPiece,
    MessagePlace,
    PeekedPiece,
    PeekPiece,
    RedrivenPiece,
    RedrivePiece,
    Spotted,
    Trace,
    Traced,
    Walk,
    WhyPiece,
)
from popmq_server.commands.pulling import (
    Attend,
    CloneOffsets,
    OffsetsOfQueue,
    Pull,
    Pulled,
    QueryOffsets,
    Reset,
    ResetOffsets,
    SendBack,
    SentBack,
    SetConsumeMode,
    Sweep,
    UpdateOffsets,
)
from popmq_server.commands.queries import Query
from popmq_server.commands.sessions import ReleaseSession, RenewSession
from popmq_server.commands.staging import BatchCommitted, CommitBatch, DropStages, Stage, StageName
from popmq_server.commands.store import SetMaxSize
from popmq_server.commands.timing import (
    Check,
    CountChecks,
    CreateSchedule,
    DeleteSchedule,
    End,
    Ended,
    EndTransaction,
    Listen,
    PauseSchedule,
    Recall,
    RunSchedule,
)

__all__ = [
    "LANES",
    "LANE_ACK",
    "LANE_POP",
    "LANE_SEND",
    "Ack",
    "AckUpTo",
    "Acked",
    "AttachOwner",
    "Attend",
    "Available",
    "BatchCommitted",
    "Change",
    "ChangeInvisibleTime",
    "Check",
    "CloneOffsets",
    "CommitBatch",
    "CountChecks",
    "CreateGroup",
    "CreateSchedule",
    "CreateTopic",
    "DeleteGroup",
    "DeleteSchedule",
    "DeleteTopic",
    "DiscardPiece",
    "DropStages",
    "End",
    "EndLease",
    "EndTransaction",
    "Ended",
    "Failure",
    "FindDeadLetters",
    "Listen",
    "LiteSynced",
    "LookUp",
    "LookUpPiece",
    "LookedUp",
    "LookedUpPiece",
    "MessagePlace",
    "NewMessage",
    "OffsetsOfQueue",
    "PauseSchedule",
    "Peek",
    "PeekPiece",
    "PeekedPiece",
    "Place",
    "Pop",
    "PopToken",
    "Popped",
    "PoppedRow",
    "Position",
    "Pull",
    "Pulled",
    "PurgeTopic",
    "Query",
    "QueryOffsets",
    "ReadRow",
    "Recall",
    "Redrive",
    "RedrivePiece",
    "Redriven",
    "RedrivenPiece",
    "ReleaseOwner",
    "ReleaseSession",
    "RenewOwner",
    "RenewSession",
    "Renewed",
    "Reset",
    "ResetOffsets",
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
    "Spotted",
    "Stage",
    "StageName",
    "Sweep",
    "SyncLite",
    "Trace",
    "Traced",
    "UpdateGroup",
    "UpdateOffsets",
    "UpdateTopic",
    "Walk",
    "Why",
    "WhyPiece",
    "bytes_of",
    "needs_room",
]


def needs_room(command: Any) -> bool:
    """Whether a command is refused as a whole if the store has no room. A rollback frees room."""
    if isinstance(command, EndTransaction):
        return any(isinstance(end, End) and end.commit for end in command.ends)
    return type(command) in NEED_ROOM
