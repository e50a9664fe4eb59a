"""What RocketMQ answers and what goes wrong on the way → refusals of the contract.

ANSWERS has each response code. What only the operator can mend, such as a right of the gateway's own user, is
UNAVAILABLE with an action that names the broker and the setting: the client has done nothing wrong, and its own rights
are those of its access key. scripts/cluster_tables.py writes the table of docs/cluster-codes.md from them.
"""

import re
import shlex
from typing import NamedTuple

from popmq_remoting.codes import ResponseCode
from popmq_remoting.errors import BrokerRefused, RemotingError, TooBusy, Unreachable
from popmq_server.errors import Refused, topic_not_found

#: Characters of a broker's remark that are quoted: it may be of any length.
_REMARK_CHARACTERS_MAX = 200
#: The used share of a disk, in the remark of answer 14; and from where on brokers delete files at once to have room.
_USED, _FULL_FROM = re.compile(r"\b(?:CL|CQ|INDEX): (\d+(?:\.\d+)?)"), 0.85
_RETRY_MS, _BUSY_MS, _FULL_MS = 200, 100, 1_000

_RETRY = "retry with backoff"
_LOG = "retry with backoff; the operator finds the reason in the log of broker {broker}"
_MAYBE = "it may be stored: a retry may store it twice, with the same message id"
_RIGHT = "the operator gives the gateway's user (--broker-key) the right to do this at broker {broker}"
_SECRET = "the operator corrects the user or its secret (--broker-key), or creates the user at broker {broker}"
_CONTROLLER = "the operator looks at the controller of broker {broker}"
#: Whether a group exists is looked up in a list before: where a broker lacks it, others have it.
_GROUP = "popmq group create GROUP; with the settings that it has, that makes it at broker {broker}"
_DISK = "the operator frees disk of broker {broker}, or shortens its fileReservedTime; acks still work"


class Answer(NamedTuple):
    """A response code. `code`: of popmq.v1, "" for an answer that each call reads itself. `action`: with {broker}."""

    number: int
    name: str
    code: str
    action: str = ""


ANSWERS = {
    each.number: each
    for each in (
        Answer(0, "SUCCESS", ""),
        Answer(1, "SYSTEM_ERROR", "UNAVAILABLE", _LOG),
        Answer(2, "SYSTEM_BUSY", "BUSY", _RETRY),
        Answer(3, "REQUEST_CODE_NOT_SUPPORTED", "UNSUPPORTED", "the operator upgrades broker {broker}"),
        Answer(4, "TRANSACTION_FAILED", "UNAVAILABLE", _LOG),
        Answer(10, "FLUSH_DISK_TIMEOUT", "UNAVAILABLE", f"{_MAYBE}; the disk of broker {{broker}} is slow"),
        Answer(11, "SLAVE_NOT_AVAILABLE", "UNAVAILABLE", f"{_MAYBE}; broker {{broker}} has no replica (brokerRole)"),
        Answer(12, "FLUSH_SLAVE_TIMEOUT", "UNAVAILABLE", f"{_MAYBE}; a replica of broker {{broker}} is slow"),
        Answer(13, "MESSAGE_ILLEGAL", "INVALID_FIELD", "send less, or the operator raises maxMessageSize of {broker}"),
        Answer(14, "SERVICE_NOT_AVAILABLE", "UNAVAILABLE", _LOG),
        Answer(15, "VERSION_NOT_SUPPORTED", "UNAVAILABLE", "the operator upgrades broker {broker}"),
        Answer(16, "NO_PERMISSION", "UNAVAILABLE", f"{_RIGHT}, or brokerPermission of it"),
        Answer(17, "TOPIC_NOT_EXIST", "TOPIC_NOT_FOUND", "popmq topic create TOPIC"),
        Answer(18, "TOPIC_EXIST_ALREADY", "ALREADY_EXISTS", "use the topic as it is, or update it"),
        Answer(19, "PULL_NOT_FOUND", ""),
        Answer(20, "PULL_RETRY_IMMEDIATELY", ""),
        Answer(21, "PULL_OFFSET_MOVED", ""),
        Answer(22, "QUERY_NOT_FOUND", ""),
        Answer(23, "SUBSCRIPTION_PARSE_FAILED", "FILTER_INVALID", "correct the filter"),
        Answer(24, "SUBSCRIPTION_NOT_EXIST", "UNAVAILABLE", _RETRY),
        Answer(25, "SUBSCRIPTION_NOT_LATEST", "UNAVAILABLE", _RETRY),
        Answer(26, "SUBSCRIPTION_GROUP_NOT_EXIST", "UNAVAILABLE", _GROUP),
        Answer(27, "FILTER_DATA_NOT_EXIST", "UNAVAILABLE", _RETRY),
        Answer(28, "FILTER_DATA_NOT_LATEST", "UNAVAILABLE", _RETRY),
        Answer(29, "INVALID_PARAMETER", "INVALID_FIELD", "give the value that the message names another one"),
        Answer(200, "TRANSACTION_SHOULD_COMMIT", "UNAVAILABLE", _LOG),
        Answer(201, "TRANSACTION_SHOULD_ROLLBACK", "UNAVAILABLE", _LOG),
        Answer(202, "TRANSACTION_STATE_UNKNOW", "UNAVAILABLE", _LOG),
        Answer(203, "TRANSACTION_STATE_GROUP_WRONG", "UNAVAILABLE", _LOG),
        Answer(204, "NO_BUYER_ID", "UNAVAILABLE", _LOG),
        Answer(205, "NOT_IN_CURRENT_UNIT", "UNAVAILABLE", _LOG),
        Answer(206, "CONSUMER_NOT_ONLINE", "CLIENT_NOT_FOUND", "name a client that `popmq sessions` shows"),
        Answer(207, "CONSUME_MSG_TIMEOUT", "UNAVAILABLE", "the client did not answer in time: ask it again"),
        Answer(208, "NO_MESSAGE", ""),
        Answer(209, "POLLING_FULL", "POLLING_FULL", "retry with backoff; maxPopPollingSize of broker {broker}"),
        Answer(210, "POLLING_TIMEOUT", ""),
        Answer(211, "BROKER_NOT_EXIST", "UNAVAILABLE", "retry with backoff; the operator looks why {broker} is away"),
        Answer(212, "BROKER_DISPATCH_NOT_COMPLETE", "UNAVAILABLE", _RETRY),
        Answer(213, "BROADCAST_CONSUMPTION", "INVALID_FIELD", "name a group that does not read by broadcast"),
        Answer(215, "FLOW_CONTROL", "BUSY", _RETRY),
        Answer(501, "NOT_LEADER_FOR_QUEUE", "UNAVAILABLE", _RETRY),
        Answer(604, "ILLEGAL_OPERATION", "INVALID_FIELD", "give the value that the message names another one"),
        Answer(1500, "GO_AWAY", "UNAVAILABLE", _RETRY),
        *(
            Answer(2000 + place, f"CONTROLLER_{name}", "UNAVAILABLE", _CONTROLLER)
            for place, name in enumerate(
                (
                    *("FENCED_MASTER_EPOCH", "FENCED_SYNC_STATE_SET_EPOCH", "INVALID_MASTER", "INVALID_REPLICAS"),
                    *("MASTER_NOT_AVAILABLE", "INVALID_REQUEST", "BROKER_NOT_ALIVE", "NOT_LEADER"),
                    *("BROKER_METADATA_NOT_EXIST", "INVALID_CLEAN_BROKER_METADATA", "BROKER_NEED_TO_BE_REGISTERED"),
                    *("MASTER_STILL_EXIST", "ELECT_MASTER_FAILED", "ALTER_SYNC_STATE_SET_FAILED", "BROKER_ID_INVALID"),
                    *("JRAFT_INTERNAL_ERROR", "BROKER_LIVE_INFO_NOT_EXISTS"),
                )
            )
        ),
        Answer(2017, "LMQ_QUOTA_EXCEEDED", "LITE_TOPIC_QUOTA", "use fewer lite topics"),
        Answer(2018, "LITE_SUBSCRIPTION_QUOTA_EXCEEDED", "LITE_SUBSCRIPTION_QUOTA", "subscribe to fewer lite topics"),
        Answer(3001, "USER_NOT_EXIST", "UNAVAILABLE", "the operator creates the gateway's user at broker {broker}"),
        Answer(3002, "POLICY_NOT_EXIST", "UNAVAILABLE", _RIGHT),
        Answer(-1000, "RPC_UNKNOWN", "UNAVAILABLE", _LOG),
        Answer(-1002, "RPC_ADDR_IS_NULL", "UNAVAILABLE", _LOG),
        Answer(-1004, "RPC_SEND_TO_CHANNEL_FAILED", "UNAVAILABLE", _LOG),
        Answer(-1006, "RPC_TIME_OUT", "UNAVAILABLE", _LOG),
    )
}


class ByRemark(NamedTuple):
    """An answer whose remark says more than its number. `words`: any of them, in lower case."""

    number: int
    words: tuple[str, ...]
    code: str
    action: str


#: Answers by their remark; the first one that fits counts.
BY_REMARK = (
    ByRemark(1, ("aclexception", "signature", "authenticat", "access key"), "UNAVAILABLE", _SECRET),
    ByRemark(
        1,
        ("to filter message by",),
        "UNSUPPORTED",
        "the operator sets enablePropertyFilter=true at broker {broker}, or filter by tags",
    ),
    ByRemark(1, ("flow control", "wheel"), "BUSY", "retry with backoff; timerCongestNumEachSlot of broker {broker}"),
    ByRemark(
        1,
        ("in-sync", "insync", "in sync"),
        "UNAVAILABLE",
        "retry with backoff; too few replicas of broker {broker} are in sync (inSyncReplicas, minInSyncReplicas)",
    ),
    ByRemark(14, ("disk is full",), "STORAGE_FULL", _DISK),
    ByRemark(
        16, ("recall",), "UNSUPPORTED", "the operator sets recallMessageEnable=true at broker {broker}, or do without"
    ),
    ByRemark(16, ("signature", "user not found"), "UNAVAILABLE", _SECRET),
    ByRemark(16, ("subscription group no permission",), "FORBIDDEN", "set consume_enable of the group"),
    ByRemark(
        16,
        ("the topic[",),
        "FORBIDDEN",
        "change the permission of the topic: popmq topic update TOPIC --permission READ_WRITE",
    ),
)
_RETRY_AFTER_MS = {"BUSY": _BUSY_MS, "STORAGE_FULL": _FULL_MS, "UNAVAILABLE": _RETRY_MS, "POLLING_FULL": _RETRY_MS}


class Asked(NamedTuple):
    """What was asked: of which broker, or name server; names as PopMQ has them; the field at fault, if it is known."""

    broker: str
    topic: str = ""
    group: str = ""
    field: str = ""


#: Asked in place of a broker.
NAME_SERVERS = "name servers"


def refusal(error: RemotingError, asked: Asked) -> Refused:
    """The refusal for what a call to a broker raised; without its name where several, or none, were asked."""
    at = f"broker {asked.broker}" if asked.broker else "the cluster"
    if asked.broker == NAME_SERVERS:
        at = f"the {NAME_SERVERS}"
    if isinstance(error, BrokerRefused):
        return _of_answer(error.code, error.remark, asked)
    if isinstance(error, TooBusy):
        return Refused("BUSY", f"{at}: {error}", action=_RETRY, retry_after_ms=max(1, error.retry_after_ms))
    if error.maybe_done:
        action = "retry with backoff; it may have been done: what is sent again may be stored twice"
    elif isinstance(error, Unreachable):
        action = f"retry with backoff; the operator looks why there is no answer from {at}"
    else:
        action = f"retry with backoff; the operator looks what listens at the address of {at}"
    return Refused("UNAVAILABLE", f"{at}: {_short(str(error))}", action=action, retry_after_ms=_RETRY_MS)


def lacks_group(refused: Refused) -> bool:
    """Whether a broker refused because it lacks the group."""
    cause = refused.__cause__
    return isinstance(cause, BrokerRefused) and cause.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST


def _of_answer(number: int, remark: str, asked: Asked) -> Refused:
    code, action = _judged(number, remark)
    if code == "TOPIC_NOT_FOUND" and asked.topic:
        return topic_not_found(asked.topic)
    if asked.group:
        action = action.replace(" GROUP", f" {shlex.quote(asked.group)}")
    name = ANSWERS[number].name if number in ANSWERS else "a code that this gateway does not know"
    return Refused(
        code,
        f"broker {asked.broker} answered {number} ({name}): {_short(remark) or 'no remark'}",
        field=asked.field if code in {"INVALID_FIELD", "FILTER_INVALID"} else "",
        action=action.format(broker=asked.broker),
        retry_after_ms=_RETRY_AFTER_MS.get(code, 0),
    )


def _judged(number: int, remark: str) -> tuple[str, str]:
    """(code, action). An answer that its call should have read itself counts as unknown."""
    low = remark.lower()
    for rule in BY_REMARK:
        if rule.number == number and any(word in low for word in rule.words) and not _has_room(rule, remark):
            return rule.code, rule.action
    found = ANSWERS.get(number)
    return (found.code, found.action) if found and found.code else ("UNAVAILABLE", _LOG)


def _has_room(rule: ByRemark, remark: str) -> bool:
    """Whether a remark that names a full disk also says that there is room.

    Brokers list all that answer 14 may mean, among it a full disk, with how full it is: so does one that stops, or has
    become a replica.
    """
    used = [float(share) for share in _USED.findall(remark)]
    return rule.code == "STORAGE_FULL" and bool(used) and max(used) < _FULL_FROM


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _REMARK_CHARACTERS_MAX else f"{line[:_REMARK_CHARACTERS_MAX]}…"
