"""Numbers of the protocol: requests, answers, languages, versions, and bits of flags."""

from __future__ import annotations

from enum import IntEnum, IntFlag


class RequestCode(IntEnum):
    """What a request asks for. Those from 200000 on do not fit the binary header, whose code is a short."""

    PULL_MESSAGE = 11
    QUERY_MESSAGE = 12
    QUERY_CONSUMER_OFFSET = 14
    UPDATE_CONSUMER_OFFSET = 15
    UPDATE_AND_CREATE_TOPIC = 17
    GET_ALL_TOPIC_CONFIG = 21
    GET_BROKER_CONFIG = 26
    GET_BROKER_RUNTIME_INFO = 28
    SEARCH_OFFSET_BY_TIMESTAMP = 29
    GET_MAX_OFFSET = 30
    GET_MIN_OFFSET = 31
    GET_EARLIEST_MSG_STORETIME = 32
    VIEW_MESSAGE_BY_ID = 33
    HEART_BEAT = 34
    UNREGISTER_CLIENT = 35
    CONSUMER_SEND_MSG_BACK = 36
    END_TRANSACTION = 37
    GET_CONSUMER_LIST_BY_GROUP = 38
    CHECK_TRANSACTION_STATE = 39
    NOTIFY_CONSUMER_IDS_CHANGED = 40
    LOCK_BATCH_MQ = 41
    UNLOCK_BATCH_MQ = 42
    PUT_KV_CONFIG = 100
    GET_KV_CONFIG = 101
    DELETE_KV_CONFIG = 102
    GET_ROUTEINFO_BY_TOPIC = 105
    GET_BROKER_CLUSTER_INFO = 106
    UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200
    GET_ALL_SUBSCRIPTIONGROUP_CONFIG = 201
    GET_TOPIC_STATS_INFO = 202
    GET_CONSUMER_CONNECTION_LIST = 203
    GET_PRODUCER_CONNECTION_LIST = 204
    GET_ALL_TOPIC_LIST_FROM_NAMESERVER = 206
    DELETE_SUBSCRIPTIONGROUP = 207
    GET_CONSUME_STATS = 208
    DELETE_TOPIC_IN_BROKER = 215
    DELETE_TOPIC_IN_NAMESRV = 216
    GET_KVLIST_BY_NAMESPACE = 219
    RESET_CONSUMER_CLIENT_OFFSET = 220
    INVOKE_BROKER_TO_RESET_OFFSET = 222
    GET_TOPICS_BY_CLUSTER = 224
    QUERY_TOPIC_CONSUME_BY_WHO = 300
    GET_CONSUMER_RUNNING_INFO = 307
    CONSUME_MESSAGE_DIRECTLY = 309
    SEND_MESSAGE_V2 = 310
    CLONE_GROUP_OFFSET = 314
    SEND_BATCH_MESSAGE = 320
    GET_ALL_PRODUCER_INFO = 328
    QUERY_TOPICS_BY_CONSUMER = 343
    GET_TOPIC_CONFIG = 351
    GET_SUBSCRIPTIONGROUP_CONFIG = 352
    RECALL_MESSAGE = 370
    QUERY_ASSIGNMENT = 400
    SET_MESSAGE_REQUEST_MODE = 401
    GET_ALL_MESSAGE_REQUEST_MODE = 402
    GET_BROKER_HA_STATUS = 907
    POP_MESSAGE = 200050
    ACK_MESSAGE = 200051
    PEEK_MESSAGE = 200052
    CHANGE_MESSAGE_INVISIBLETIME = 200053
    NOTIFICATION = 200054
    POLLING_INFO = 200055
    BATCH_ACK_MESSAGE = 200151


class ResponseCode(IntEnum):
    """What an answer says."""

    SUCCESS = 0
    SYSTEM_ERROR = 1
    SYSTEM_BUSY = 2
    REQUEST_CODE_NOT_SUPPORTED = 3
    FLUSH_DISK_TIMEOUT = 10
    SLAVE_NOT_AVAILABLE = 11
    FLUSH_SLAVE_TIMEOUT = 12
    MESSAGE_ILLEGAL = 13
    SERVICE_NOT_AVAILABLE = 14
    VERSION_NOT_SUPPORTED = 15
    NO_PERMISSION = 16
    TOPIC_NOT_EXIST = 17
    PULL_NOT_FOUND = 19
    PULL_RETRY_IMMEDIATELY = 20
    PULL_OFFSET_MOVED = 21
    QUERY_NOT_FOUND = 22
    SUBSCRIPTION_PARSE_FAILED = 23
    SUBSCRIPTION_GROUP_NOT_EXIST = 26
    INVALID_PARAMETER = 29
    CONSUMER_NOT_ONLINE = 206
    NO_MESSAGE = 208
    POLLING_FULL = 209
    POLLING_TIMEOUT = 210
    NOT_LEADER = 501
    ILLEGAL_OPERATION = 604
    GO_AWAY = 1500


class Language(IntEnum):
    """How a client names its language: a name in the JSON header, a byte in the binary one."""

    JAVA = 0
    CPP = 1
    DOTNET = 2
    PYTHON = 3
    DELPHI = 4
    ERLANG = 5
    RUBY = 6
    OTHER = 7
    HTTP = 8
    GO = 9
    PHP = 10
    OMS = 11
    RUST = 12
    NODE_JS = 13


#: The ordinal of release 5.3.3, which this package speaks as. From 4.9.4 on (≥ 401) routes come as standard JSON; above
#: 5.3.1 a broker that stops says GO_AWAY.
VERSION = 479
#: Ordinals of the first patch release of each minor release, and of what has been measured.
RELEASES = {413: "5.0.0", 433: "5.1.0", 453: "5.2.0", 473: "5.3.0", 479: "5.3.3", 493: "5.4.0", 513: "5.5.0"}


class HeaderFlag(IntFlag):
    """Bits of a header's flag."""

    RESPONSE = 1
    #: Never answered, not even with an error.
    ONEWAY = 2


class SysFlag(IntFlag):
    """Bits of a message's sysFlag. Bits 8 to 10 name the compression (messages/compression.py)."""

    COMPRESSED = 1
    MULTI_TAGS = 2
    PREPARED = 4
    COMMIT = 8
    ROLLBACK = 12
    BORN_HOST_V6 = 16
    STORE_HOST_V6 = 32
    INNER_BATCH = 128


class PullFlag(IntFlag):
    """Bits of the sysFlag of a pull."""

    COMMIT = 1
    #: The broker parks the pull until a message comes.
    SUSPEND = 2
    #: The request carries its filter, so no heartbeat has to.
    SUBSCRIPTION = 4


class Permission(IntFlag):
    """Bits of `perm` of a topic's queues."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8
