from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Encoding(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ENCODING_UNSPECIFIED: _ClassVar[Encoding]
    ENCODING_GZIP: _ClassVar[Encoding]
    ENCODING_ZSTD: _ClassVar[Encoding]
    ENCODING_LZ4: _ClassVar[Encoding]
    ENCODING_ZLIB: _ClassVar[Encoding]

class Format(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORMAT_ROWS: _ClassVar[Format]
    FORMAT_COLUMNS: _ClassVar[Format]

class ConsumeMode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    POP: _ClassVar[ConsumeMode]
    PULL: _ClassVar[ConsumeMode]

class Resolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RESOLUTION_UNSPECIFIED: _ClassVar[Resolution]
    COMMIT: _ClassVar[Resolution]
    ROLLBACK: _ClassVar[Resolution]

class PullStatus(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PULL_STATUS_UNSPECIFIED: _ClassVar[PullStatus]
    FOUND: _ClassVar[PullStatus]
    NO_MESSAGE_IN_QUEUE: _ClassVar[PullStatus]
    OFFSET_TOO_SMALL: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_ONE: _ClassVar[PullStatus]
    OFFSET_OVERFLOW_BADLY: _ClassVar[PullStatus]
    OFFSET_FOUND_NULL: _ClassVar[PullStatus]
    NO_MATCHED_LOGIC_QUEUE: _ClassVar[PullStatus]
    NO_MATCHED_MESSAGE: _ClassVar[PullStatus]
    MESSAGE_WAS_REMOVING: _ClassVar[PullStatus]

class TopicType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    TOPIC_TYPE_UNSPECIFIED: _ClassVar[TopicType]
    NORMAL: _ClassVar[TopicType]
    FIFO: _ClassVar[TopicType]
    DELAY: _ClassVar[TopicType]
    TRANSACTION: _ClassVar[TopicType]
    PRIORITY: _ClassVar[TopicType]
    LITE: _ClassVar[TopicType]

class Permission(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PERMISSION_UNSPECIFIED: _ClassVar[Permission]
    READ_WRITE: _ClassVar[Permission]
    READ_ONLY: _ClassVar[Permission]
    WRITE_ONLY: _ClassVar[Permission]
    NO_ACCESS: _ClassVar[Permission]

class StartFrom(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EARLIEST: _ClassVar[StartFrom]
    LATEST: _ClassVar[StartFrom]
    TIMESTAMP: _ClassVar[StartFrom]

class Missed(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSED_UNSPECIFIED: _ClassVar[Missed]
    SKIP: _ClassVar[Missed]
    ONCE: _ClassVar[Missed]
    ALL: _ClassVar[Missed]

class BrowseOrder(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    BY_OFFSET: _ClassVar[BrowseOrder]
    NEWEST_FIRST: _ClassVar[BrowseOrder]
    OLDEST_FIRST: _ClassVar[BrowseOrder]

class Code(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CODE_UNSPECIFIED: _ClassVar[Code]
    INVALID_FIELD: _ClassVar[Code]
    TOPIC_NOT_FOUND: _ClassVar[Code]
    GROUP_NOT_FOUND: _ClassVar[Code]
    OWNER_NOT_FOUND: _ClassVar[Code]
    ALREADY_EXISTS: _ClassVar[Code]
    INVALID_HANDLE: _ClassVar[Code]
    HANDLE_LAPSED: _ClassVar[Code]
    FENCED: _ClassVar[Code]
    EPOCH_ALREADY_ACKED: _ClassVar[Code]
    FILTER_CONFLICT: _ClassVar[Code]
    FILTER_INVALID: _ClassVar[Code]
    REQUEST_NUMBER_REUSED: _ClassVar[Code]
    STORAGE_FULL: _ClassVar[Code]
    BUSY: _ClassVar[Code]
    IN_FLIGHT_LIMIT: _ClassVar[Code]
    POLLING_FULL: _ClassVar[Code]
    UNAVAILABLE: _ClassVar[Code]
    UNSUPPORTED: _ClassVar[Code]
    UNAUTHENTICATED: _ClassVar[Code]
    PERMISSION_DENIED: _ClassVar[Code]
    INTERNAL: _ClassVar[Code]
    MESSAGE_NOT_FOUND: _ClassVar[Code]
    TRANSACTION_NOT_FOUND: _ClassVar[Code]
    TRANSACTION_ENDED: _ClassVar[Code]
    RATE_LIMITED: _ClassVar[Code]
    WRONG_CONSUME_MODE: _ClassVar[Code]
    CLIENT_NOT_FOUND: _ClassVar[Code]
    LITE_TOPIC_QUOTA: _ClassVar[Code]
    LITE_SUBSCRIPTION_QUOTA: _ClassVar[Code]
    FORBIDDEN: _ClassVar[Code]
    STAGE_NOT_FOUND: _ClassVar[Code]
    SCHEDULE_NOT_FOUND: _ClassVar[Code]
ENCODING_UNSPECIFIED: Encoding
ENCODING_GZIP: Encoding
ENCODING_ZSTD: Encoding
ENCODING_LZ4: Encoding
ENCODING_ZLIB: Encoding
FORMAT_ROWS: Format
FORMAT_COLUMNS: Format
POP: ConsumeMode
PULL: ConsumeMode
RESOLUTION_UNSPECIFIED: Resolution
COMMIT: Resolution
ROLLBACK: Resolution
PULL_STATUS_UNSPECIFIED: PullStatus
FOUND: PullStatus
NO_MESSAGE_IN_QUEUE: PullStatus
OFFSET_TOO_SMALL: PullStatus
OFFSET_OVERFLOW_ONE: PullStatus
OFFSET_OVERFLOW_BADLY: PullStatus
OFFSET_FOUND_NULL: PullStatus
NO_MATCHED_LOGIC_QUEUE: PullStatus
NO_MATCHED_MESSAGE: PullStatus
MESSAGE_WAS_REMOVING: PullStatus
TOPIC_TYPE_UNSPECIFIED: TopicType
NORMAL: TopicType
FIFO: TopicType
DELAY: TopicType
TRANSACTION: TopicType
PRIORITY: TopicType
LITE: TopicType
PERMISSION_UNSPECIFIED: Permission
READ_WRITE: Permission
READ_ONLY: Permission
WRITE_ONLY: Permission
NO_ACCESS: Permission
EARLIEST: StartFrom
LATEST: StartFrom
TIMESTAMP: StartFrom
MISSED_UNSPECIFIED: Missed
SKIP: Missed
ONCE: Missed
ALL: Missed
BY_OFFSET: BrowseOrder
NEWEST_FIRST: BrowseOrder
OLDEST_FIRST: BrowseOrder
CODE_UNSPECIFIED: Code
INVALID_FIELD: Code
TOPIC_NOT_FOUND: Code
GROUP_NOT_FOUND: Code
OWNER_NOT_FOUND: Code
ALREADY_EXISTS: Code
INVALID_HANDLE: Code
HANDLE_LAPSED: Code
FENCED: Code
EPOCH_ALREADY_ACKED: Code
FILTER_CONFLICT: Code
FILTER_INVALID: Code
REQUEST_NUMBER_REUSED: Code
STORAGE_FULL: Code
BUSY: Code
IN_FLIGHT_LIMIT: Code
POLLING_FULL: Code
UNAVAILABLE: Code
UNSUPPORTED: Code
UNAUTHENTICATED: Code
PERMISSION_DENIED: Code
INTERNAL: Code
MESSAGE_NOT_FOUND: Code
TRANSACTION_NOT_FOUND: Code
TRANSACTION_ENDED: Code
RATE_LIMITED: Code
WRONG_CONSUME_MODE: Code
CLIENT_NOT_FOUND: Code
LITE_TOPIC_QUOTA: Code
LITE_SUBSCRIPTION_QUOTA: Code
FORBIDDEN: Code
STAGE_NOT_FOUND: Code
SCHEDULE_NOT_FOUND: Code

class TraceContext(_message.Message):
    __slots__ = ("traceparent", "tracestate")
    TRACEPARENT_FIELD_NUMBER: _ClassVar[int]
    TRACESTATE_FIELD_NUMBER: _ClassVar[int]
    traceparent: str
    tracestate: str
    def __init__(self, traceparent: _Optional[str] = ..., tracestate: _Optional[str] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("message_id", "body", "tag", "keys", "properties", "message_group", "deliver_at_ms", "priority", "transaction", "encoding", "trace_context", "born_ms", "delay_ms", "dead_letter", "born_host", "lite_topic", "check_after_ms", "ttl_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    TRACE_CONTEXT_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    BORN_HOST_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    CHECK_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    body: bytes
    tag: str
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    message_group: str
    deliver_at_ms: int
    priority: int
    transaction: bool
    encoding: Encoding
    trace_context: TraceContext
    born_ms: int
    delay_ms: int
    dead_letter: DeadLetter
    born_host: str
    lite_topic: str
    check_after_ms: int
    ttl_ms: int
    def __init__(self, message_id: _Optional[str] = ..., body: _Optional[bytes] = ..., tag: _Optional[str] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., message_group: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ..., priority: _Optional[int] = ..., transaction: bool = ..., encoding: _Optional[_Union[Encoding, str]] = ..., trace_context: _Optional[_Union[TraceContext, _Mapping]] = ..., born_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., dead_letter: _Optional[_Union[DeadLetter, _Mapping]] = ..., born_host: _Optional[str] = ..., lite_topic: _Optional[str] = ..., check_after_ms: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("topic", "queue", "offset", "attempts", "first_pop_ms", "last_client", "reason", "dead_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    FIRST_POP_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_CLIENT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: int
    offset: int
    attempts: int
    first_pop_ms: int
    last_client: str
    reason: str
    dead_ms: int
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., attempts: _Optional[int] = ..., first_pop_ms: _Optional[int] = ..., last_client: _Optional[str] = ..., reason: _Optional[str] = ..., dead_ms: _Optional[int] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("topic", "messages", "producer_id", "request_number")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    producer_id: str
    request_number: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., producer_id: _Optional[str] = ..., request_number: _Optional[int] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("results", "duplicate")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SendResult]
    duplicate: bool
    def __init__(self, results: _Optional[_Iterable[_Union[SendResult, _Mapping]]] = ..., duplicate: bool = ...) -> None: ...

class SendResult(_message.Message):
    __slots__ = ("error", "message_id", "queue", "offset", "recall_handle", "transaction_id", "duplicate")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    error: ErrorInfo
    message_id: str
    queue: int
    offset: int
    recall_handle: str
    transaction_id: str
    duplicate: bool
    def __init__(self, error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., message_id: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., recall_handle: _Optional[str] = ..., transaction_id: _Optional[str] = ..., duplicate: bool = ...) -> None: ...

class Filter(_message.Message):
    __slots__ = ("tag", "sql92")
    TAG_FIELD_NUMBER: _ClassVar[int]
    SQL92_FIELD_NUMBER: _ClassVar[int]
    tag: str
    sql92: str
    def __init__(self, tag: _Optional[str] = ..., sql92: _Optional[str] = ...) -> None: ...

class Token(_message.Message):
    __slots__ = ("owner", "generation", "epoch", "part", "chunk", "share", "upto", "topic_id")
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    owner: str
    generation: int
    epoch: int
    part: int
    chunk: int
    share: int
    upto: Position
    topic_id: int
    def __init__(self, owner: _Optional[str] = ..., generation: _Optional[int] = ..., epoch: _Optional[int] = ..., part: _Optional[int] = ..., chunk: _Optional[int] = ..., share: _Optional[int] = ..., upto: _Optional[_Union[Position, _Mapping]] = ..., topic_id: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("queues", "retry")
    class QueuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.ScalarMap[int, int]
    retry: int
    def __init__(self, queues: _Optional[_Mapping[int, int]] = ..., retry: _Optional[int] = ...) -> None: ...

class PopRequest(_message.Message):
    __slots__ = ("topic", "group", "queues", "max_messages", "max_bytes", "wait_ms", "invisible_ms", "filter", "client_id", "attempt_id", "token", "format", "lite_topics", "without_body", "columns")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_BODY_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    queues: _containers.RepeatedScalarFieldContainer[int]
    max_messages: int
    max_bytes: int
    wait_ms: int
    invisible_ms: int
    filter: Filter
    client_id: str
    attempt_id: str
    token: Token
    format: Format
    lite_topics: _containers.RepeatedScalarFieldContainer[str]
    without_body: bool
    columns: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., queues: _Optional[_Iterable[int]] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., invisible_ms: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., client_id: _Optional[str] = ..., attempt_id: _Optional[str] = ..., token: _Optional[_Union[Token, _Mapping]] = ..., format: _Optional[_Union[Format, str]] = ..., lite_topics: _Optional[_Iterable[str]] = ..., without_body: bool = ..., columns: _Optional[_Iterable[str]] = ...) -> None: ...

class PopResponse(_message.Message):
    __slots__ = ("deliveries", "popped_ms", "invisible_until_ms", "rest", "sealed", "columns", "replay")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    POPPED_MS_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    REST_FIELD_NUMBER: _ClassVar[int]
    SEALED_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    REPLAY_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    popped_ms: int
    invisible_until_ms: int
    rest: int
    sealed: Sealed
    columns: Columns
    replay: bool
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., popped_ms: _Optional[int] = ..., invisible_until_ms: _Optional[int] = ..., rest: _Optional[int] = ..., sealed: _Optional[_Union[Sealed, _Mapping]] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., replay: bool = ...) -> None: ...

class Sealed(_message.Message):
    __slots__ = ("count", "end", "torn_stolen", "torn_lost")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    TORN_STOLEN_FIELD_NUMBER: _ClassVar[int]
    TORN_LOST_FIELD_NUMBER: _ClassVar[int]
    count: int
    end: bool
    torn_stolen: int
    torn_lost: int
    def __init__(self, count: _Optional[int] = ..., end: bool = ..., torn_stolen: _Optional[int] = ..., torn_lost: _Optional[int] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("message", "handle", "attempt", "queue", "offset", "stored_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    message: Message
    handle: str
    attempt: int
    queue: int
    offset: int
    stored_ms: int
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., handle: _Optional[str] = ..., attempt: _Optional[int] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class Columns(_message.Message):
    __slots__ = ("message_id", "body", "tag", "key", "queue", "offset", "born_ms", "stored_ms", "attempt", "handle", "properties", "dead_letter", "keys", "message_group", "priority", "encoding")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    ENCODING_FIELD_NUMBER: _ClassVar[int]
    message_id: _containers.RepeatedScalarFieldContainer[str]
    body: _containers.RepeatedScalarFieldContainer[bytes]
    tag: _containers.RepeatedScalarFieldContainer[str]
    key: _containers.RepeatedScalarFieldContainer[str]
    queue: _containers.RepeatedScalarFieldContainer[int]
    offset: _containers.RepeatedScalarFieldContainer[int]
    born_ms: _containers.RepeatedScalarFieldContainer[int]
    stored_ms: _containers.RepeatedScalarFieldContainer[int]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    handle: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.RepeatedCompositeFieldContainer[Properties]
    dead_letter: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    keys: _containers.RepeatedCompositeFieldContainer[Keys]
    message_group: _containers.RepeatedScalarFieldContainer[str]
    priority: _containers.RepeatedScalarFieldContainer[int]
    encoding: _containers.RepeatedScalarFieldContainer[Encoding]
    def __init__(self, message_id: _Optional[_Iterable[str]] = ..., body: _Optional[_Iterable[bytes]] = ..., tag: _Optional[_Iterable[str]] = ..., key: _Optional[_Iterable[str]] = ..., queue: _Optional[_Iterable[int]] = ..., offset: _Optional[_Iterable[int]] = ..., born_ms: _Optional[_Iterable[int]] = ..., stored_ms: _Optional[_Iterable[int]] = ..., attempt: _Optional[_Iterable[int]] = ..., handle: _Optional[_Iterable[str]] = ..., properties: _Optional[_Iterable[_Union[Properties, _Mapping]]] = ..., dead_letter: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., keys: _Optional[_Iterable[_Union[Keys, _Mapping]]] = ..., message_group: _Optional[_Iterable[str]] = ..., priority: _Optional[_Iterable[int]] = ..., encoding: _Optional[_Iterable[_Union[Encoding, str]]] = ...) -> None: ...

class Keys(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, keys: _Optional[_Iterable[str]] = ...) -> None: ...

class Properties(_message.Message):
    __slots__ = ("entries",)
    class EntriesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    entries: _containers.ScalarMap[str, str]
    def __init__(self, entries: _Optional[_Mapping[str, str]] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("group", "handles", "results")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    results: _containers.RepeatedCompositeFieldContainer[DeliveryResult]
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ..., results: _Optional[_Iterable[_Union[DeliveryResult, _Mapping]]] = ...) -> None: ...

class DeliveryResult(_message.Message):
    __slots__ = ("handle", "body", "content_type")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    handle: int
    body: bytes
    content_type: str
    def __init__(self, handle: _Optional[int] = ..., body: _Optional[bytes] = ..., content_type: _Optional[str] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[AckResult]
    def __init__(self, results: _Optional[_Iterable[_Union[AckResult, _Mapping]]] = ...) -> None: ...

class AckResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: ErrorInfo
    def __init__(self, error: _Optional[_Union[ErrorInfo, _Mapping]] = ...) -> None: ...

class ChangeInvisibleTimeRequest(_message.Message):
    __slots__ = ("group", "changes", "repeated_try")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    REPEATED_TRY_FIELD_NUMBER: _ClassVar[int]
    group: str
    changes: _containers.RepeatedCompositeFieldContainer[InvisibleTimeChange]
    repeated_try: bool
    def __init__(self, group: _Optional[str] = ..., changes: _Optional[_Iterable[_Union[InvisibleTimeChange, _Mapping]]] = ..., repeated_try: bool = ...) -> None: ...

class InvisibleTimeChange(_message.Message):
    __slots__ = ("handle", "extend", "release", "reject")
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    handle: str
    extend: Extend
    release: Release
    reject: Reject
    def __init__(self, handle: _Optional[str] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., reject: _Optional[_Union[Reject, _Mapping]] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("invisible_ms",)
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    invisible_ms: int
    def __init__(self, invisible_ms: _Optional[int] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("delay_ms", "uncounted", "reason", "snooze")
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    UNCOUNTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SNOOZE_FIELD_NUMBER: _ClassVar[int]
    delay_ms: int
    uncounted: bool
    reason: str
    snooze: bool
    def __init__(self, delay_ms: _Optional[int] = ..., uncounted: bool = ..., reason: _Optional[str] = ..., snooze: bool = ...) -> None: ...

class Reject(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ChangeInvisibleTimeResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[InvisibleTimeResult]
    def __init__(self, results: _Optional[_Iterable[_Union[InvisibleTimeResult, _Mapping]]] = ...) -> None: ...

class InvisibleTimeResult(_message.Message):
    __slots__ = ("error", "visible_ms", "dead_lettered", "handle")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERED_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    error: ErrorInfo
    visible_ms: int
    dead_lettered: bool
    handle: str
    def __init__(self, error: _Optional[_Union[ErrorInfo, _Mapping]] = ..., visible_ms: _Optional[int] = ..., dead_lettered: bool = ..., handle: _Optional[str] = ...) -> None: ...

class SettleRequest(_message.Message):
    __slots__ = ("group", "handles", "changes", "sends", "producer_id", "request_number", "results")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    HANDLES_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    handles: _containers.RepeatedScalarFieldContainer[str]
    changes: _containers.RepeatedCompositeFieldContainer[InvisibleTimeChange]
    sends: _containers.RepeatedCompositeFieldContainer[SettleSend]
    producer_id: str
    request_number: int
    results: _containers.RepeatedCompositeFieldContainer[DeliveryResult]
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ..., changes: _Optional[_Iterable[_Union[InvisibleTimeChange, _Mapping]]] = ..., sends: _Optional[_Iterable[_Union[SettleSend, _Mapping]]] = ..., producer_id: _Optional[str] = ..., request_number: _Optional[int] = ..., results: _Optional[_Iterable[_Union[DeliveryResult, _Mapping]]] = ...) -> None: ...

class SettleSend(_message.Message):
    __slots__ = ("topic", "messages")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("sends", "duplicate")
    SENDS_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    sends: _containers.RepeatedCompositeFieldContainer[SendResponse]
    duplicate: bool
    def __init__(self, sends: _Optional[_Iterable[_Union[SendResponse, _Mapping]]] = ..., duplicate: bool = ...) -> None: ...

class GetResultsRequest(_message.Message):
    __slots__ = ("group", "message_ids", "wait_ms", "min_results", "max_bytes")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_RESULTS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    group: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    wait_ms: int
    min_results: int
    max_bytes: int
    def __init__(self, group: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., wait_ms: _Optional[int] = ..., min_results: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class GetResultsResponse(_message.Message):
    __slots__ = ("results", "full")
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    FULL_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[Result]
    full: bool
    def __init__(self, results: _Optional[_Iterable[_Union[Result, _Mapping]]] = ..., full: bool = ...) -> None: ...

class Result(_message.Message):
    __slots__ = ("message_id", "body", "content_type", "failure", "stored_ms")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    body: bytes
    content_type: str
    failure: DeadLetter
    stored_ms: int
    def __init__(self, message_id: _Optional[str] = ..., body: _Optional[bytes] = ..., content_type: _Optional[str] = ..., failure: _Optional[_Union[DeadLetter, _Mapping]] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class StoreResultsRequest(_message.Message):
    __slots__ = ("group", "results")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    results: _containers.RepeatedCompositeFieldContainer[MessageResult]
    def __init__(self, group: _Optional[str] = ..., results: _Optional[_Iterable[_Union[MessageResult, _Mapping]]] = ...) -> None: ...

class MessageResult(_message.Message):
    __slots__ = ("message_id", "body", "content_type")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    CONTENT_TYPE_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    body: bytes
    content_type: str
    def __init__(self, message_id: _Optional[str] = ..., body: _Optional[bytes] = ..., content_type: _Optional[str] = ...) -> None: ...

class StoreResultsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ForgetResultsRequest(_message.Message):
    __slots__ = ("group", "message_ids")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    group: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ForgetResultsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryAssignmentRequest(_message.Message):
    __slots__ = ("topic", "group", "client_id", "strategy", "broadcast")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    client_id: str
    strategy: str
    broadcast: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ..., strategy: _Optional[str] = ..., broadcast: bool = ...) -> None: ...

class QueryAssignmentResponse(_message.Message):
    __slots__ = ("known", "all", "queues", "mode")
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    ALL_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    known: bool
    all: bool
    queues: _containers.RepeatedScalarFieldContainer[int]
    mode: ConsumeMode
    def __init__(self, known: bool = ..., all: bool = ..., queues: _Optional[_Iterable[int]] = ..., mode: _Optional[_Union[ConsumeMode, str]] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("client_id", "group", "topics", "goodbye", "pop_topics", "pull_topics")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GOODBYE_FIELD_NUMBER: _ClassVar[int]
    POP_TOPICS_FIELD_NUMBER: _ClassVar[int]
    PULL_TOPICS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    goodbye: bool
    pop_topics: _containers.RepeatedScalarFieldContainer[str]
    pull_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_id: _Optional[str] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., goodbye: bool = ..., pop_topics: _Optional[_Iterable[str]] = ..., pull_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("interval_ms", "assignment_version")
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    ASSIGNMENT_VERSION_FIELD_NUMBER: _ClassVar[int]
    interval_ms: int
    assignment_version: int
    def __init__(self, interval_ms: _Optional[int] = ..., assignment_version: _Optional[int] = ...) -> None: ...

class SessionRequest(_message.Message):
    __slots__ = ("hello", "checked")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    CHECKED_FIELD_NUMBER: _ClassVar[int]
    hello: SessionHello
    checked: TransactionChecked
    def __init__(self, hello: _Optional[_Union[SessionHello, _Mapping]] = ..., checked: _Optional[_Union[TransactionChecked, _Mapping]] = ...) -> None: ...

class SessionHello(_message.Message):
    __slots__ = ("client_id", "transaction_topics")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_TOPICS_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    transaction_topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, client_id: _Optional[str] = ..., transaction_topics: _Optional[_Iterable[str]] = ...) -> None: ...

class TransactionChecked(_message.Message):
    __slots__ = ("transaction_id", "resolution")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    resolution: Resolution
    def __init__(self, transaction_id: _Optional[str] = ..., resolution: _Optional[_Union[Resolution, str]] = ...) -> None: ...

class SessionResponse(_message.Message):
    __slots__ = ("welcome", "check")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    welcome: SessionWelcome
    check: TransactionCheck
    def __init__(self, welcome: _Optional[_Union[SessionWelcome, _Mapping]] = ..., check: _Optional[_Union[TransactionCheck, _Mapping]] = ...) -> None: ...

class SessionWelcome(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class TransactionCheck(_message.Message):
    __slots__ = ("transaction_id", "topic", "message", "check")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    topic: str
    message: Message
    check: int
    def __init__(self, transaction_id: _Optional[str] = ..., topic: _Optional[str] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., check: _Optional[int] = ...) -> None: ...

class RecallRequest(_message.Message):
    __slots__ = ("topic", "recall_handle")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recall_handle: str
    def __init__(self, topic: _Optional[str] = ..., recall_handle: _Optional[str] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("topic", "recall_handle", "deliver_at_ms", "delay_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    recall_handle: str
    deliver_at_ms: int
    delay_ms: int
    def __init__(self, topic: _Optional[str] = ..., recall_handle: _Optional[str] = ..., deliver_at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("message_id", "recall_handle", "due_ms")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    recall_handle: str
    due_ms: int
    def __init__(self, message_id: _Optional[str] = ..., recall_handle: _Optional[str] = ..., due_ms: _Optional[int] = ...) -> None: ...

class EndTransactionRequest(_message.Message):
    __slots__ = ("ends",)
    ENDS_FIELD_NUMBER: _ClassVar[int]
    ends: _containers.RepeatedCompositeFieldContainer[TransactionEnd]
    def __init__(self, ends: _Optional[_Iterable[_Union[TransactionEnd, _Mapping]]] = ...) -> None: ...

class TransactionEnd(_message.Message):
    __slots__ = ("transaction_id", "resolution")
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    transaction_id: str
    resolution: Resolution
    def __init__(self, transaction_id: _Optional[str] = ..., resolution: _Optional[_Union[Resolution, str]] = ...) -> None: ...

class EndTransactionResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[SendResult]
    def __init__(self, results: _Optional[_Iterable[_Union[SendResult, _Mapping]]] = ...) -> None: ...

class StageRequest(_message.Message):
    __slots__ = ("topic", "messages", "sink", "batch", "stage_id", "piece")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    sink: str
    batch: int
    stage_id: str
    piece: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., sink: _Optional[str] = ..., batch: _Optional[int] = ..., stage_id: _Optional[str] = ..., piece: _Optional[int] = ...) -> None: ...

class StageResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[StageResult]
    def __init__(self, results: _Optional[_Iterable[_Union[StageResult, _Mapping]]] = ...) -> None: ...

class StageResult(_message.Message):
    __slots__ = ("error",)
    ERROR_FIELD_NUMBER: _ClassVar[int]
    error: ErrorInfo
    def __init__(self, error: _Optional[_Union[ErrorInfo, _Mapping]] = ...) -> None: ...

class StageName(_message.Message):
    __slots__ = ("stage_id", "topic", "messages")
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    stage_id: str
    topic: str
    messages: int
    def __init__(self, stage_id: _Optional[str] = ..., topic: _Optional[str] = ..., messages: _Optional[int] = ...) -> None: ...

class CommitBatchRequest(_message.Message):
    __slots__ = ("sink", "batch", "stages", "origin")
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    sink: str
    batch: int
    stages: _containers.RepeatedCompositeFieldContainer[StageName]
    origin: str
    def __init__(self, sink: _Optional[str] = ..., batch: _Optional[int] = ..., stages: _Optional[_Iterable[_Union[StageName, _Mapping]]] = ..., origin: _Optional[str] = ...) -> None: ...

class CommitBatchResponse(_message.Message):
    __slots__ = ("duplicate", "messages")
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    duplicate: bool
    messages: int
    def __init__(self, duplicate: bool = ..., messages: _Optional[int] = ...) -> None: ...

class DropStagesRequest(_message.Message):
    __slots__ = ("sink", "stages")
    SINK_FIELD_NUMBER: _ClassVar[int]
    STAGES_FIELD_NUMBER: _ClassVar[int]
    sink: str
    stages: _containers.RepeatedCompositeFieldContainer[StageName]
    def __init__(self, sink: _Optional[str] = ..., stages: _Optional[_Iterable[_Union[StageName, _Mapping]]] = ...) -> None: ...

class DropStagesResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("topic", "group", "queue", "offset", "max_messages", "max_bytes", "wait_ms", "filter", "commit_offset", "format", "without_body", "end_offset", "columns", "topic_created_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    COMMIT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_BODY_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    queue: int
    offset: int
    max_messages: int
    max_bytes: int
    wait_ms: int
    filter: Filter
    commit_offset: int
    format: Format
    without_body: bool
    end_offset: int
    columns: _containers.RepeatedScalarFieldContainer[str]
    topic_created_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., max_bytes: _Optional[int] = ..., wait_ms: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., commit_offset: _Optional[int] = ..., format: _Optional[_Union[Format, str]] = ..., without_body: bool = ..., end_offset: _Optional[int] = ..., columns: _Optional[_Iterable[str]] = ..., topic_created_ms: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("status", "deliveries", "next_offset", "min_offset", "max_offset", "columns", "topic_created_ms", "passed_over")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    PASSED_OVER_FIELD_NUMBER: _ClassVar[int]
    status: PullStatus
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_offset: int
    min_offset: int
    max_offset: int
    columns: Columns
    topic_created_ms: int
    passed_over: int
    def __init__(self, status: _Optional[_Union[PullStatus, str]] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., columns: _Optional[_Union[Columns, _Mapping]] = ..., topic_created_ms: _Optional[int] = ..., passed_over: _Optional[int] = ...) -> None: ...

class UpdateOffsetsRequest(_message.Message):
    __slots__ = ("topic", "group", "offsets", "topic_created_ms")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    offsets: _containers.ScalarMap[int, int]
    topic_created_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., offsets: _Optional[_Mapping[int, int]] = ..., topic_created_ms: _Optional[int] = ...) -> None: ...

class UpdateOffsetsResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class QueryOffsetsRequest(_message.Message):
    __slots__ = ("topic", "group", "timestamp_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    timestamp_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., timestamp_ms: _Optional[int] = ...) -> None: ...

class QueryOffsetsResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedCompositeFieldContainer[QueueOffsets]
    def __init__(self, queues: _Optional[_Iterable[_Union[QueueOffsets, _Mapping]]] = ...) -> None: ...

class QueueOffsets(_message.Message):
    __slots__ = ("queue", "min_offset", "max_offset", "committed", "at_timestamp", "least_committed", "read_ms", "bytes_behind", "topic_created_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    COMMITTED_FIELD_NUMBER: _ClassVar[int]
    AT_TIMESTAMP_FIELD_NUMBER: _ClassVar[int]
    LEAST_COMMITTED_FIELD_NUMBER: _ClassVar[int]
    READ_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    min_offset: int
    max_offset: int
    committed: int
    at_timestamp: int
    least_committed: int
    read_ms: int
    bytes_behind: int
    topic_created_ms: int
    def __init__(self, queue: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., committed: _Optional[int] = ..., at_timestamp: _Optional[int] = ..., least_committed: _Optional[int] = ..., read_ms: _Optional[int] = ..., bytes_behind: _Optional[int] = ..., topic_created_ms: _Optional[int] = ...) -> None: ...

class SendBackRequest(_message.Message):
    __slots__ = ("topic", "group", "messages", "client_id", "topic_created_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    messages: _containers.RepeatedCompositeFieldContainer[SentBack]
    client_id: str
    topic_created_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., messages: _Optional[_Iterable[_Union[SentBack, _Mapping]]] = ..., client_id: _Optional[str] = ..., topic_created_ms: _Optional[int] = ...) -> None: ...

class SentBack(_message.Message):
    __slots__ = ("queue", "offset", "retry", "delay_ms", "reason", "reject", "attempts", "max_attempts")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    REJECT_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    offset: int
    retry: bool
    delay_ms: int
    reason: str
    reject: bool
    attempts: int
    max_attempts: int
    def __init__(self, queue: _Optional[int] = ..., offset: _Optional[int] = ..., retry: bool = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ..., reject: bool = ..., attempts: _Optional[int] = ..., max_attempts: _Optional[int] = ...) -> None: ...

class SendBackResponse(_message.Message):
    __slots__ = ("results",)
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    results: _containers.RepeatedCompositeFieldContainer[InvisibleTimeResult]
    def __init__(self, results: _Optional[_Iterable[_Union[InvisibleTimeResult, _Mapping]]] = ...) -> None: ...

class LockQueuesRequest(_message.Message):
    __slots__ = ("topic", "group", "client_id", "queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    client_id: str
    queues: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[int]] = ...) -> None: ...

class LockQueuesResponse(_message.Message):
    __slots__ = ("queues", "lock_ms")
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    LOCK_MS_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[int]
    lock_ms: int
    def __init__(self, queues: _Optional[_Iterable[int]] = ..., lock_ms: _Optional[int] = ...) -> None: ...

class UnlockQueuesRequest(_message.Message):
    __slots__ = ("topic", "group", "client_id", "queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    client_id: str
    queues: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., client_id: _Optional[str] = ..., queues: _Optional[_Iterable[int]] = ...) -> None: ...

class UnlockQueuesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("topic", "group", "max_messages", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    max_messages: int
    filter: Filter
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., max_messages: _Optional[int] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class AttachOwnerRequest(_message.Message):
    __slots__ = ("group", "owner", "lease_ms", "topic", "start", "create_group")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CREATE_GROUP_FIELD_NUMBER: _ClassVar[int]
    group: str
    owner: str
    lease_ms: int
    topic: str
    start: StartPosition
    create_group: bool
    def __init__(self, group: _Optional[str] = ..., owner: _Optional[str] = ..., lease_ms: _Optional[int] = ..., topic: _Optional[str] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ..., create_group: bool = ...) -> None: ...

class AttachOwnerResponse(_message.Message):
    __slots__ = ("generation", "acked_epoch", "queues")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ACKED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    generation: int
    acked_epoch: int
    queues: int
    def __init__(self, generation: _Optional[int] = ..., acked_epoch: _Optional[int] = ..., queues: _Optional[int] = ...) -> None: ...

class RenewOwnerRequest(_message.Message):
    __slots__ = ("group", "owner", "generation", "lease_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    owner: str
    generation: int
    lease_ms: int
    def __init__(self, group: _Optional[str] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class RenewOwnerResponse(_message.Message):
    __slots__ = ("tokens", "messages", "lease_until_ms")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    messages: int
    lease_until_ms: int
    def __init__(self, tokens: _Optional[int] = ..., messages: _Optional[int] = ..., lease_until_ms: _Optional[int] = ...) -> None: ...

class AckUpToRequest(_message.Message):
    __slots__ = ("group", "owner", "generation", "epoch")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    group: str
    owner: str
    generation: int
    epoch: int
    def __init__(self, group: _Optional[str] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class AckUpToResponse(_message.Message):
    __slots__ = ("acked", "acked_epoch", "torn")
    ACKED_FIELD_NUMBER: _ClassVar[int]
    ACKED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    TORN_FIELD_NUMBER: _ClassVar[int]
    acked: int
    acked_epoch: int
    torn: int
    def __init__(self, acked: _Optional[int] = ..., acked_epoch: _Optional[int] = ..., torn: _Optional[int] = ...) -> None: ...

class ReleaseOwnerRequest(_message.Message):
    __slots__ = ("group", "owner", "generation")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    group: str
    owner: str
    generation: int
    def __init__(self, group: _Optional[str] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class ReleaseOwnerResponse(_message.Message):
    __slots__ = ("released",)
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    released: int
    def __init__(self, released: _Optional[int] = ...) -> None: ...

class WaitAvailableRequest(_message.Message):
    __slots__ = ("topic", "group", "min_ready", "wait_ms", "upto", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MIN_READY_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    min_ready: int
    wait_ms: int
    upto: Position
    filter: Filter
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., min_ready: _Optional[int] = ..., wait_ms: _Optional[int] = ..., upto: _Optional[_Union[Position, _Mapping]] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class WaitAvailableResponse(_message.Message):
    __slots__ = ("ready", "upto", "stats", "topic_id")
    READY_FIELD_NUMBER: _ClassVar[int]
    UPTO_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    ready: int
    upto: Position
    stats: GroupStats
    topic_id: int
    def __init__(self, ready: _Optional[int] = ..., upto: _Optional[_Union[Position, _Mapping]] = ..., stats: _Optional[_Union[GroupStats, _Mapping]] = ..., topic_id: _Optional[int] = ...) -> None: ...

class Retention(_message.Message):
    __slots__ = ("by_age", "keep_ms", "max_bytes")
    BY_AGE_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    by_age: bool
    keep_ms: int
    max_bytes: int
    def __init__(self, by_age: bool = ..., keep_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ...) -> None: ...

class Quota(_message.Message):
    __slots__ = ("send_messages_per_s", "send_bytes_per_s", "message_bytes", "pop_messages_per_s")
    SEND_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    SEND_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    POP_MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    send_messages_per_s: int
    send_bytes_per_s: int
    message_bytes: int
    pop_messages_per_s: int
    def __init__(self, send_messages_per_s: _Optional[int] = ..., send_bytes_per_s: _Optional[int] = ..., message_bytes: _Optional[int] = ..., pop_messages_per_s: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("name", "type", "queues", "retention", "created_ms", "quota", "unique_ids_ms", "lite", "permission")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    QUOTA_FIELD_NUMBER: _ClassVar[int]
    UNIQUE_IDS_MS_FIELD_NUMBER: _ClassVar[int]
    LITE_FIELD_NUMBER: _ClassVar[int]
    PERMISSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: TopicType
    queues: int
    retention: Retention
    created_ms: int
    quota: Quota
    unique_ids_ms: int
    lite: LiteTopics
    permission: Permission
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[TopicType, str]] = ..., queues: _Optional[int] = ..., retention: _Optional[_Union[Retention, _Mapping]] = ..., created_ms: _Optional[int] = ..., quota: _Optional[_Union[Quota, _Mapping]] = ..., unique_ids_ms: _Optional[int] = ..., lite: _Optional[_Union[LiteTopics, _Mapping]] = ..., permission: _Optional[_Union[Permission, str]] = ...) -> None: ...

class LiteTopics(_message.Message):
    __slots__ = ("topics_max", "ttl_ms")
    TOPICS_MAX_FIELD_NUMBER: _ClassVar[int]
    TTL_MS_FIELD_NUMBER: _ClassVar[int]
    topics_max: int
    ttl_ms: int
    def __init__(self, topics_max: _Optional[int] = ..., ttl_ms: _Optional[int] = ...) -> None: ...

class StartPosition(_message.Message):
    __slots__ = ("timestamp_ms",)
    FROM_FIELD_NUMBER: _ClassVar[int]
    TIMESTAMP_MS_FIELD_NUMBER: _ClassVar[int]
    timestamp_ms: int
    def __init__(self, timestamp_ms: _Optional[int] = ..., **kwargs) -> None: ...

class Backoff(_message.Message):
    __slots__ = ("delays_ms",)
    DELAYS_MS_FIELD_NUMBER: _ClassVar[int]
    delays_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delays_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Group(_message.Message):
    __slots__ = ("name", "max_attempts", "backoff", "invisible_ms", "share_number", "start", "exclusive_owner", "fifo", "created_ms", "in_flight_max", "stop_on_failure", "lite_exclusive", "consume_enable", "subscription_expiry_ms", "snoozes_max", "dead_letter_expired", "results_keep_ms", "fair_keys")
    NAME_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    INVISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    SHARE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_OWNER_FIELD_NUMBER: _ClassVar[int]
    FIFO_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    STOP_ON_FAILURE_FIELD_NUMBER: _ClassVar[int]
    LITE_EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_ENABLE_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    SNOOZES_MAX_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_EXPIRED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    FAIR_KEYS_FIELD_NUMBER: _ClassVar[int]
    name: str
    max_attempts: int
    backoff: Backoff
    invisible_ms: int
    share_number: int
    start: StartPosition
    exclusive_owner: bool
    fifo: bool
    created_ms: int
    in_flight_max: int
    stop_on_failure: bool
    lite_exclusive: bool
    consume_enable: bool
    subscription_expiry_ms: int
    snoozes_max: int
    dead_letter_expired: bool
    results_keep_ms: int
    fair_keys: FairKeys
    def __init__(self, name: _Optional[str] = ..., max_attempts: _Optional[int] = ..., backoff: _Optional[_Union[Backoff, _Mapping]] = ..., invisible_ms: _Optional[int] = ..., share_number: _Optional[int] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ..., exclusive_owner: bool = ..., fifo: bool = ..., created_ms: _Optional[int] = ..., in_flight_max: _Optional[int] = ..., stop_on_failure: bool = ..., lite_exclusive: bool = ..., consume_enable: bool = ..., subscription_expiry_ms: _Optional[int] = ..., snoozes_max: _Optional[int] = ..., dead_letter_expired: bool = ..., results_keep_ms: _Optional[int] = ..., fair_keys: _Optional[_Union[FairKeys, _Mapping]] = ...) -> None: ...

class FairKeys(_message.Message):
    __slots__ = ("property", "message_key", "label_separator", "in_flight_max", "messages_per_s", "exceptions")
    PROPERTY_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_KEY_FIELD_NUMBER: _ClassVar[int]
    LABEL_SEPARATOR_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    EXCEPTIONS_FIELD_NUMBER: _ClassVar[int]
    property: str
    message_key: bool
    label_separator: str
    in_flight_max: int
    messages_per_s: int
    exceptions: _containers.RepeatedCompositeFieldContainer[FairKeyLimits]
    def __init__(self, property: _Optional[str] = ..., message_key: bool = ..., label_separator: _Optional[str] = ..., in_flight_max: _Optional[int] = ..., messages_per_s: _Optional[int] = ..., exceptions: _Optional[_Iterable[_Union[FairKeyLimits, _Mapping]]] = ...) -> None: ...

class FairKeyLimits(_message.Message):
    __slots__ = ("key", "in_flight_max", "messages_per_s")
    KEY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    key: str
    in_flight_max: int
    messages_per_s: int
    def __init__(self, key: _Optional[str] = ..., in_flight_max: _Optional[int] = ..., messages_per_s: _Optional[int] = ...) -> None: ...

class FairKeyStats(_message.Message):
    __slots__ = ("key", "waiting", "in_flight")
    KEY_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    key: str
    waiting: int
    in_flight: int
    def __init__(self, key: _Optional[str] = ..., waiting: _Optional[int] = ..., in_flight: _Optional[int] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("topic", "filter", "mode", "share_number")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SHARE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    filter: Filter
    mode: ConsumeMode
    share_number: int
    def __init__(self, topic: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ..., mode: _Optional[_Union[ConsumeMode, str]] = ..., share_number: _Optional[int] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class CreateTopicResponse(_message.Message):
    __slots__ = ("topic", "existed")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    existed: bool
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., existed: bool = ...) -> None: ...

class UpdateTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class UpdateTopicResponse(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetTopicResponse(_message.Message):
    __slots__ = ("topic", "queues")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    topic: Topic
    queues: _containers.RepeatedCompositeFieldContainer[QueueStats]
    def __init__(self, topic: _Optional[_Union[Topic, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueStats, _Mapping]]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("dead_letter_topics", "page_size", "page_token")
    DEAD_LETTER_TOPICS_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    dead_letter_topics: bool
    page_size: int
    page_token: str
    def __init__(self, dead_letter_topics: bool = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class CreateGroupResponse(_message.Message):
    __slots__ = ("group", "existed")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    group: Group
    existed: bool
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., existed: bool = ...) -> None: ...

class UpdateGroupRequest(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class UpdateGroupResponse(_message.Message):
    __slots__ = ("group",)
    GROUP_FIELD_NUMBER: _ClassVar[int]
    group: Group
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ...) -> None: ...

class GetGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class GetGroupResponse(_message.Message):
    __slots__ = ("group", "stats", "subscriptions")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    group: Group
    stats: _containers.RepeatedCompositeFieldContainer[GroupStats]
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, group: _Optional[_Union[Group, _Mapping]] = ..., stats: _Optional[_Iterable[_Union[GroupStats, _Mapping]]] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class ListGroupsRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListGroupsResponse(_message.Message):
    __slots__ = ("groups", "next_page_token")
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    groups: _containers.RepeatedCompositeFieldContainer[Group]
    next_page_token: str
    def __init__(self, groups: _Optional[_Iterable[_Union[Group, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PurgeTopicResponse(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: int
    def __init__(self, dropped: _Optional[int] = ...) -> None: ...

class SetFilterRequest(_message.Message):
    __slots__ = ("topic", "group", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    filter: Filter
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., filter: _Optional[_Union[Filter, _Mapping]] = ...) -> None: ...

class SetFilterResponse(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ...) -> None: ...

class SetConsumeModeRequest(_message.Message):
    __slots__ = ("topic", "group", "mode", "share_number", "start")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    SHARE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    mode: ConsumeMode
    share_number: int
    start: StartPosition
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., mode: _Optional[_Union[ConsumeMode, str]] = ..., share_number: _Optional[int] = ..., start: _Optional[_Union[StartPosition, _Mapping]] = ...) -> None: ...

class SetConsumeModeResponse(_message.Message):
    __slots__ = ("subscription",)
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    subscription: Subscription
    def __init__(self, subscription: _Optional[_Union[Subscription, _Mapping]] = ...) -> None: ...

class ResetOffsetsRequest(_message.Message):
    __slots__ = ("topic", "group", "to", "offsets")
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TO_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    to: StartPosition
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., to: _Optional[_Union[StartPosition, _Mapping]] = ..., offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ResetOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class CloneOffsetsRequest(_message.Message):
    __slots__ = ("topic", "from_group", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FROM_GROUP_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    from_group: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., from_group: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class CloneOffsetsResponse(_message.Message):
    __slots__ = ("offsets",)
    class OffsetsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: int
        value: int
        def __init__(self, key: _Optional[int] = ..., value: _Optional[int] = ...) -> None: ...
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    offsets: _containers.ScalarMap[int, int]
    def __init__(self, offsets: _Optional[_Mapping[int, int]] = ...) -> None: ...

class ListMessageGroupsRequest(_message.Message):
    __slots__ = ("topic", "group", "max_message_groups", "stopped_only", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    STOPPED_ONLY_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    max_message_groups: int
    stopped_only: bool
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., max_message_groups: _Optional[int] = ..., stopped_only: bool = ..., page_token: _Optional[str] = ...) -> None: ...

class ListMessageGroupsResponse(_message.Message):
    __slots__ = ("message_groups", "waiting", "stopped", "next_page_token")
    MESSAGE_GROUPS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    message_groups: _containers.RepeatedCompositeFieldContainer[MessageGroupState]
    waiting: int
    stopped: int
    next_page_token: str
    def __init__(self, message_groups: _Optional[_Iterable[_Union[MessageGroupState, _Mapping]]] = ..., waiting: _Optional[int] = ..., stopped: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class MessageGroupState(_message.Message):
    __slots__ = ("message_group", "waiting", "leased", "stopped", "reason")
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    message_group: str
    waiting: int
    leased: int
    stopped: bool
    reason: str
    def __init__(self, message_group: _Optional[str] = ..., waiting: _Optional[int] = ..., leased: _Optional[int] = ..., stopped: bool = ..., reason: _Optional[str] = ...) -> None: ...

class ResumeMessageGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "message_group", "dead_letter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_GROUP_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    message_group: str
    dead_letter: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., message_group: _Optional[str] = ..., dead_letter: bool = ...) -> None: ...

class ResumeMessageGroupResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LookUpRequest(_message.Message):
    __slots__ = ("topic", "message_id", "key", "max_messages", "from_ms", "until_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    key: str
    max_messages: int
    from_ms: int
    until_ms: int
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., key: _Optional[str] = ..., max_messages: _Optional[int] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class LookUpResponse(_message.Message):
    __slots__ = ("deliveries", "more")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    more: bool
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., more: bool = ...) -> None: ...

class WhyRequest(_message.Message):
    __slots__ = ("message_id", "topic", "group")
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    topic: str
    group: str
    def __init__(self, message_id: _Optional[str] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class WhyResponse(_message.Message):
    __slots__ = ("lives",)
    LIVES_FIELD_NUMBER: _ClassVar[int]
    lives: _containers.RepeatedCompositeFieldContainer[MessageLife]
    def __init__(self, lives: _Optional[_Iterable[_Union[MessageLife, _Mapping]]] = ...) -> None: ...

class MessageLife(_message.Message):
    __slots__ = ("topic", "queue", "offset", "stored_ms", "place", "due_ms", "groups")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: int
    offset: int
    stored_ms: int
    place: str
    due_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupLife]
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., stored_ms: _Optional[int] = ..., place: _Optional[str] = ..., due_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupLife, _Mapping]]] = ...) -> None: ...

class GroupLife(_message.Message):
    __slots__ = ("group", "state", "explanation", "events")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    EXPLANATION_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: str
    explanation: str
    events: _containers.RepeatedCompositeFieldContainer[LifeEvent]
    def __init__(self, group: _Optional[str] = ..., state: _Optional[str] = ..., explanation: _Optional[str] = ..., events: _Optional[_Iterable[_Union[LifeEvent, _Mapping]]] = ...) -> None: ...

class LifeEvent(_message.Message):
    __slots__ = ("time_ms", "what", "client_id", "until_ms", "attempt", "reason")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    WHAT_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    what: str
    client_id: str
    until_ms: int
    attempt: int
    reason: str
    def __init__(self, time_ms: _Optional[int] = ..., what: _Optional[str] = ..., client_id: _Optional[str] = ..., until_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class RedriveDeadLettersRequest(_message.Message):
    __slots__ = ("group", "offsets", "topic", "message_ids", "reason", "exception")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    exception: str
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ..., topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., exception: _Optional[str] = ...) -> None: ...

class RedriveDeadLettersResponse(_message.Message):
    __slots__ = ("redriven", "failures")
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    redriven: int
    failures: _containers.RepeatedCompositeFieldContainer[RedriveFailure]
    def __init__(self, redriven: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[RedriveFailure, _Mapping]]] = ...) -> None: ...

class RedriveFailure(_message.Message):
    __slots__ = ("offset", "message_id", "error")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    offset: int
    message_id: str
    error: ErrorInfo
    def __init__(self, offset: _Optional[int] = ..., message_id: _Optional[str] = ..., error: _Optional[_Union[ErrorInfo, _Mapping]] = ...) -> None: ...

class DiscardDeadLettersRequest(_message.Message):
    __slots__ = ("group", "offsets", "topic", "message_ids", "reason", "exception")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    group: str
    offsets: _containers.RepeatedScalarFieldContainer[int]
    topic: str
    message_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    exception: str
    def __init__(self, group: _Optional[str] = ..., offsets: _Optional[_Iterable[int]] = ..., topic: _Optional[str] = ..., message_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., exception: _Optional[str] = ...) -> None: ...

class DiscardDeadLettersResponse(_message.Message):
    __slots__ = ("discarded", "failures")
    DISCARDED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    discarded: int
    failures: _containers.RepeatedCompositeFieldContainer[RedriveFailure]
    def __init__(self, discarded: _Optional[int] = ..., failures: _Optional[_Iterable[_Union[RedriveFailure, _Mapping]]] = ...) -> None: ...

class ListDeadLetterReasonsRequest(_message.Message):
    __slots__ = ("group", "topic", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    page_token: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListDeadLetterReasonsResponse(_message.Message):
    __slots__ = ("reasons", "looked_at", "next_page_token")
    REASONS_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    reasons: _containers.RepeatedCompositeFieldContainer[DeadLetterReason]
    looked_at: int
    next_page_token: str
    def __init__(self, reasons: _Optional[_Iterable[_Union[DeadLetterReason, _Mapping]]] = ..., looked_at: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeadLetterReason(_message.Message):
    __slots__ = ("reason", "messages", "first_ms", "last_ms", "last_offset", "exception")
    REASON_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    EXCEPTION_FIELD_NUMBER: _ClassVar[int]
    reason: str
    messages: int
    first_ms: int
    last_ms: int
    last_offset: int
    exception: str
    def __init__(self, reason: _Optional[str] = ..., messages: _Optional[int] = ..., first_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., last_offset: _Optional[int] = ..., exception: _Optional[str] = ...) -> None: ...

class ListDelayedRequest(_message.Message):
    __slots__ = ("topic", "until_ms", "max_messages", "page_token", "whole", "message_id", "key")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    until_ms: int
    max_messages: int
    page_token: str
    whole: bool
    message_id: str
    key: str
    def __init__(self, topic: _Optional[str] = ..., until_ms: _Optional[int] = ..., max_messages: _Optional[int] = ..., page_token: _Optional[str] = ..., whole: bool = ..., message_id: _Optional[str] = ..., key: _Optional[str] = ...) -> None: ...

class ListDelayedResponse(_message.Message):
    __slots__ = ("messages", "total", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[DelayedMessage]
    total: int
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[DelayedMessage, _Mapping]]] = ..., total: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DelayedMessage(_message.Message):
    __slots__ = ("topic", "message_id", "due_ms", "recall_handle", "stored_ms", "preview", "message")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RECALL_HANDLE_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    due_ms: int
    recall_handle: str
    stored_ms: int
    preview: MessagePreview
    message: Message
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., due_ms: _Optional[int] = ..., recall_handle: _Optional[str] = ..., stored_ms: _Optional[int] = ..., preview: _Optional[_Union[MessagePreview, _Mapping]] = ..., message: _Optional[_Union[Message, _Mapping]] = ...) -> None: ...

class MessagePreview(_message.Message):
    __slots__ = ("keys", "tag", "body", "body_bytes")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    TAG_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    tag: str
    body: bytes
    body_bytes: int
    def __init__(self, keys: _Optional[_Iterable[str]] = ..., tag: _Optional[str] = ..., body: _Optional[bytes] = ..., body_bytes: _Optional[int] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "cron", "time_zone", "topic", "message", "missed", "paused", "created_ms", "next_ms", "last_ms", "sent", "skipped", "failed", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    TIME_ZONE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    LAST_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    cron: str
    time_zone: str
    topic: str
    message: Message
    missed: Missed
    paused: bool
    created_ms: int
    next_ms: int
    last_ms: int
    sent: int
    skipped: int
    failed: int
    error: str
    def __init__(self, name: _Optional[str] = ..., cron: _Optional[str] = ..., time_zone: _Optional[str] = ..., topic: _Optional[str] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., missed: _Optional[_Union[Missed, str]] = ..., paused: bool = ..., created_ms: _Optional[int] = ..., next_ms: _Optional[int] = ..., last_ms: _Optional[int] = ..., sent: _Optional[int] = ..., skipped: _Optional[int] = ..., failed: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class CreateScheduleRequest(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class CreateScheduleResponse(_message.Message):
    __slots__ = ("schedule", "existed")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    EXISTED_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    existed: bool
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., existed: bool = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name", "upcoming")
    NAME_FIELD_NUMBER: _ClassVar[int]
    UPCOMING_FIELD_NUMBER: _ClassVar[int]
    name: str
    upcoming: int
    def __init__(self, name: _Optional[str] = ..., upcoming: _Optional[int] = ...) -> None: ...

class GetScheduleResponse(_message.Message):
    __slots__ = ("schedule", "upcoming_ms")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    UPCOMING_MS_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    upcoming_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., upcoming_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("page_size", "page_token")
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    page_size: int
    page_token: str
    def __init__(self, page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListSchedulesResponse(_message.Message):
    __slots__ = ("schedules", "next_page_token")
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    next_page_token: str
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class DeleteScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class DeleteScheduleResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class PauseScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class ResumeScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ResumeScheduleResponse(_message.Message):
    __slots__ = ("schedule",)
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ...) -> None: ...

class RunScheduleRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class RunScheduleResponse(_message.Message):
    __slots__ = ("message_id",)
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    message_id: str
    def __init__(self, message_id: _Optional[str] = ...) -> None: ...

class BackupRequest(_message.Message):
    __slots__ = ("bytes_per_s",)
    BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    bytes_per_s: int
    def __init__(self, bytes_per_s: _Optional[int] = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("data", "about_bytes", "end")
    DATA_FIELD_NUMBER: _ClassVar[int]
    ABOUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    data: bytes
    about_bytes: int
    end: BackupEnd
    def __init__(self, data: _Optional[bytes] = ..., about_bytes: _Optional[int] = ..., end: _Optional[_Union[BackupEnd, _Mapping]] = ...) -> None: ...

class BackupEnd(_message.Message):
    __slots__ = ("bytes", "sha256")
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    bytes: int
    sha256: bytes
    def __init__(self, bytes: _Optional[int] = ..., sha256: _Optional[bytes] = ...) -> None: ...

class ListTransactionsRequest(_message.Message):
    __slots__ = ("topic", "max_messages", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    max_messages: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., max_messages: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListTransactionsResponse(_message.Message):
    __slots__ = ("messages", "total", "next_page_token")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[HalfMessage]
    total: int
    next_page_token: str
    def __init__(self, messages: _Optional[_Iterable[_Union[HalfMessage, _Mapping]]] = ..., total: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class HalfMessage(_message.Message):
    __slots__ = ("topic", "message_id", "transaction_id", "stored_ms", "checks", "next_check_ms", "preview")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_ID_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_ID_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_CHECK_MS_FIELD_NUMBER: _ClassVar[int]
    PREVIEW_FIELD_NUMBER: _ClassVar[int]
    topic: str
    message_id: str
    transaction_id: str
    stored_ms: int
    checks: int
    next_check_ms: int
    preview: MessagePreview
    def __init__(self, topic: _Optional[str] = ..., message_id: _Optional[str] = ..., transaction_id: _Optional[str] = ..., stored_ms: _Optional[int] = ..., checks: _Optional[int] = ..., next_check_ms: _Optional[int] = ..., preview: _Optional[_Union[MessagePreview, _Mapping]] = ...) -> None: ...

class ListSessionsRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token", "recent")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    recent: bool
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ..., recent: bool = ...) -> None: ...

class ListSessionsResponse(_message.Message):
    __slots__ = ("sessions", "next_page_token")
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    sessions: _containers.RepeatedCompositeFieldContainer[ClientSession]
    next_page_token: str
    def __init__(self, sessions: _Optional[_Iterable[_Union[ClientSession, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class GetClientStackRequest(_message.Message):
    __slots__ = ("client_id",)
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    def __init__(self, client_id: _Optional[str] = ...) -> None: ...

class GetClientStackResponse(_message.Message):
    __slots__ = ("code", "text")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class VerifyMessageRequest(_message.Message):
    __slots__ = ("client_id", "topic", "queue", "offset")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    topic: str
    queue: int
    offset: int
    def __init__(self, client_id: _Optional[str] = ..., topic: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ...) -> None: ...

class VerifyMessageResponse(_message.Message):
    __slots__ = ("code", "text")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    code: str
    text: str
    def __init__(self, code: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ClientSession(_message.Message):
    __slots__ = ("client_id", "group", "topics", "last_seen_ms", "in_flight", "stream", "recent", "pops", "pulls", "sends", "host", "access_key")
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    STREAM_FIELD_NUMBER: _ClassVar[int]
    RECENT_FIELD_NUMBER: _ClassVar[int]
    POPS_FIELD_NUMBER: _ClassVar[int]
    PULLS_FIELD_NUMBER: _ClassVar[int]
    SENDS_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    ACCESS_KEY_FIELD_NUMBER: _ClassVar[int]
    client_id: str
    group: str
    topics: _containers.RepeatedScalarFieldContainer[str]
    last_seen_ms: int
    in_flight: int
    stream: bool
    recent: bool
    pops: int
    pulls: int
    sends: int
    host: str
    access_key: str
    def __init__(self, client_id: _Optional[str] = ..., group: _Optional[str] = ..., topics: _Optional[_Iterable[str]] = ..., last_seen_ms: _Optional[int] = ..., in_flight: _Optional[int] = ..., stream: bool = ..., recent: bool = ..., pops: _Optional[int] = ..., pulls: _Optional[int] = ..., sends: _Optional[int] = ..., host: _Optional[str] = ..., access_key: _Optional[str] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("topic", "group", "page_size", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    page_size: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class GetStatsResponse(_message.Message):
    __slots__ = ("topics", "groups", "store", "next_page_token")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    STORE_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicStats]
    groups: _containers.RepeatedCompositeFieldContainer[GroupStats]
    store: StoreStats
    next_page_token: str
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicStats, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupStats, _Mapping]]] = ..., store: _Optional[_Union[StoreStats, _Mapping]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("queue", "min_offset", "max_offset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue: int
    min_offset: int
    max_offset: int
    def __init__(self, queue: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ...) -> None: ...

class TopicStats(_message.Message):
    __slots__ = ("topic", "messages", "sent_per_s", "queues", "delayed", "half", "bytes", "lite_topics", "abandoned")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SENT_PER_S_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    HALF_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    LITE_TOPICS_FIELD_NUMBER: _ClassVar[int]
    ABANDONED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: int
    sent_per_s: float
    queues: _containers.RepeatedCompositeFieldContainer[QueueStats]
    delayed: int
    half: int
    bytes: int
    lite_topics: int
    abandoned: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[int] = ..., sent_per_s: _Optional[float] = ..., queues: _Optional[_Iterable[_Union[QueueStats, _Mapping]]] = ..., delayed: _Optional[int] = ..., half: _Optional[int] = ..., bytes: _Optional[int] = ..., lite_topics: _Optional[int] = ..., abandoned: _Optional[int] = ...) -> None: ...

class GroupStats(_message.Message):
    __slots__ = ("group", "topic", "ready", "in_flight", "retry", "backoff", "delayed", "dead", "acked", "quarantined", "oldest_age_ms", "popped_per_s", "acked_per_s", "waiters", "sessions", "owners", "waiting", "filtered", "stopped", "mode", "read_ms", "expires_ms", "bytes_behind", "dropped", "keys_waiting", "busiest_keys", "dead_blocked", "expired")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    RETRY_FIELD_NUMBER: _ClassVar[int]
    BACKOFF_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    POPPED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKED_PER_S_FIELD_NUMBER: _ClassVar[int]
    WAITERS_FIELD_NUMBER: _ClassVar[int]
    SESSIONS_FIELD_NUMBER: _ClassVar[int]
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    FILTERED_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    READ_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    BYTES_BEHIND_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    KEYS_WAITING_FIELD_NUMBER: _ClassVar[int]
    BUSIEST_KEYS_FIELD_NUMBER: _ClassVar[int]
    DEAD_BLOCKED_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    ready: int
    in_flight: int
    retry: int
    backoff: int
    delayed: int
    dead: int
    acked: int
    quarantined: int
    oldest_age_ms: int
    popped_per_s: float
    acked_per_s: float
    waiters: int
    sessions: int
    owners: int
    waiting: int
    filtered: int
    stopped: int
    mode: ConsumeMode
    read_ms: int
    expires_ms: int
    bytes_behind: int
    dropped: int
    keys_waiting: int
    busiest_keys: _containers.RepeatedCompositeFieldContainer[FairKeyStats]
    dead_blocked: int
    expired: int
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., ready: _Optional[int] = ..., in_flight: _Optional[int] = ..., retry: _Optional[int] = ..., backoff: _Optional[int] = ..., delayed: _Optional[int] = ..., dead: _Optional[int] = ..., acked: _Optional[int] = ..., quarantined: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., popped_per_s: _Optional[float] = ..., acked_per_s: _Optional[float] = ..., waiters: _Optional[int] = ..., sessions: _Optional[int] = ..., owners: _Optional[int] = ..., waiting: _Optional[int] = ..., filtered: _Optional[int] = ..., stopped: _Optional[int] = ..., mode: _Optional[_Union[ConsumeMode, str]] = ..., read_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., bytes_behind: _Optional[int] = ..., dropped: _Optional[int] = ..., keys_waiting: _Optional[int] = ..., busiest_keys: _Optional[_Iterable[_Union[FairKeyStats, _Mapping]]] = ..., dead_blocked: _Optional[int] = ..., expired: _Optional[int] = ...) -> None: ...

class GetHistoryRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class GetHistoryResponse(_message.Message):
    __slots__ = ("points", "step_ms", "left_out", "now_ms")
    POINTS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    points: _containers.RepeatedCompositeFieldContainer[HistoryPoint]
    step_ms: int
    left_out: bool
    now_ms: int
    def __init__(self, points: _Optional[_Iterable[_Union[HistoryPoint, _Mapping]]] = ..., step_ms: _Optional[int] = ..., left_out: bool = ..., now_ms: _Optional[int] = ...) -> None: ...

class HistoryPoint(_message.Message):
    __slots__ = ("time_ms", "sent_per_s", "sent_bytes_per_s", "bytes", "popped_per_s", "acked_per_s", "backlog", "in_flight", "retries", "dead", "oldest_age_ms", "broker")
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    SENT_PER_S_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_PER_S_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    POPPED_PER_S_FIELD_NUMBER: _ClassVar[int]
    ACKED_PER_S_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    time_ms: int
    sent_per_s: float
    sent_bytes_per_s: float
    bytes: int
    popped_per_s: float
    acked_per_s: float
    backlog: int
    in_flight: int
    retries: int
    dead: int
    oldest_age_ms: int
    broker: BrokerPoint
    def __init__(self, time_ms: _Optional[int] = ..., sent_per_s: _Optional[float] = ..., sent_bytes_per_s: _Optional[float] = ..., bytes: _Optional[int] = ..., popped_per_s: _Optional[float] = ..., acked_per_s: _Optional[float] = ..., backlog: _Optional[int] = ..., in_flight: _Optional[int] = ..., retries: _Optional[int] = ..., dead: _Optional[int] = ..., oldest_age_ms: _Optional[int] = ..., broker: _Optional[_Union[BrokerPoint, _Mapping]] = ...) -> None: ...

class BrokerPoint(_message.Message):
    __slots__ = ("leases_late_ms", "delayed_late_ms", "used_bytes")
    LEASES_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAYED_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    leases_late_ms: float
    delayed_late_ms: float
    used_bytes: int
    def __init__(self, leases_late_ms: _Optional[float] = ..., delayed_late_ms: _Optional[float] = ..., used_bytes: _Optional[int] = ...) -> None: ...

class ListBrokersRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListBrokersResponse(_message.Message):
    __slots__ = ("brokers", "routes_age_ms")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ROUTES_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[ClusterBroker]
    routes_age_ms: int
    def __init__(self, brokers: _Optional[_Iterable[_Union[ClusterBroker, _Mapping]]] = ..., routes_age_ms: _Optional[int] = ...) -> None: ...

class ClusterBroker(_message.Message):
    __slots__ = ("name", "id", "address", "version", "replicas", "in_sync", "ahead_ms", "disk_bytes", "disk_free_bytes", "in_flight", "error")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    IN_SYNC_FIELD_NUMBER: _ClassVar[int]
    AHEAD_MS_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    name: str
    id: int
    address: str
    version: str
    replicas: int
    in_sync: int
    ahead_ms: int
    disk_bytes: int
    disk_free_bytes: int
    in_flight: int
    error: str
    def __init__(self, name: _Optional[str] = ..., id: _Optional[int] = ..., address: _Optional[str] = ..., version: _Optional[str] = ..., replicas: _Optional[int] = ..., in_sync: _Optional[int] = ..., ahead_ms: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., in_flight: _Optional[int] = ..., error: _Optional[str] = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("version", "engine", "lacking", "weaker")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    LACKING_FIELD_NUMBER: _ClassVar[int]
    WEAKER_FIELD_NUMBER: _ClassVar[int]
    version: str
    engine: str
    lacking: _containers.RepeatedCompositeFieldContainer[Lacking]
    weaker: _containers.RepeatedCompositeFieldContainer[Weaker]
    def __init__(self, version: _Optional[str] = ..., engine: _Optional[str] = ..., lacking: _Optional[_Iterable[_Union[Lacking, _Mapping]]] = ..., weaker: _Optional[_Iterable[_Union[Weaker, _Mapping]]] = ...) -> None: ...

class Lacking(_message.Message):
    __slots__ = ("capability", "instead")
    CAPABILITY_FIELD_NUMBER: _ClassVar[int]
    INSTEAD_FIELD_NUMBER: _ClassVar[int]
    capability: str
    instead: str
    def __init__(self, capability: _Optional[str] = ..., instead: _Optional[str] = ...) -> None: ...

class Weaker(_message.Message):
    __slots__ = ("promise", "how")
    PROMISE_FIELD_NUMBER: _ClassVar[int]
    HOW_FIELD_NUMBER: _ClassVar[int]
    promise: str
    how: str
    def __init__(self, promise: _Optional[str] = ..., how: _Optional[str] = ...) -> None: ...

class StoreStats(_message.Message):
    __slots__ = ("map_bytes", "used_bytes", "disk_free_bytes", "commits", "fsyncs", "quarantined", "revived", "revived_late_ms", "delayed_released", "delayed_late_ms")
    MAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    COMMITS_FIELD_NUMBER: _ClassVar[int]
    FSYNCS_FIELD_NUMBER: _ClassVar[int]
    QUARANTINED_FIELD_NUMBER: _ClassVar[int]
    REVIVED_FIELD_NUMBER: _ClassVar[int]
    REVIVED_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAYED_RELEASED_FIELD_NUMBER: _ClassVar[int]
    DELAYED_LATE_MS_FIELD_NUMBER: _ClassVar[int]
    map_bytes: int
    used_bytes: int
    disk_free_bytes: int
    commits: int
    fsyncs: int
    quarantined: int
    revived: int
    revived_late_ms: int
    delayed_released: int
    delayed_late_ms: int
    def __init__(self, map_bytes: _Optional[int] = ..., used_bytes: _Optional[int] = ..., disk_free_bytes: _Optional[int] = ..., commits: _Optional[int] = ..., fsyncs: _Optional[int] = ..., quarantined: _Optional[int] = ..., revived: _Optional[int] = ..., revived_late_ms: _Optional[int] = ..., delayed_released: _Optional[int] = ..., delayed_late_ms: _Optional[int] = ...) -> None: ...

class SetMaxSizeRequest(_message.Message):
    __slots__ = ("map_bytes",)
    MAP_BYTES_FIELD_NUMBER: _ClassVar[int]
    map_bytes: int
    def __init__(self, map_bytes: _Optional[int] = ...) -> None: ...

class SetMaxSizeResponse(_message.Message):
    __slots__ = ("store",)
    STORE_FIELD_NUMBER: _ClassVar[int]
    store: StoreStats
    def __init__(self, store: _Optional[_Union[StoreStats, _Mapping]] = ...) -> None: ...

class BrowseRequest(_message.Message):
    __slots__ = ("topic", "queue", "offset", "max_messages", "order", "search", "from_ms", "until_ms", "page_token")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    ORDER_FIELD_NUMBER: _ClassVar[int]
    SEARCH_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: int
    offset: int
    max_messages: int
    order: BrowseOrder
    search: str
    from_ms: int
    until_ms: int
    page_token: str
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., max_messages: _Optional[int] = ..., order: _Optional[_Union[BrowseOrder, str]] = ..., search: _Optional[str] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class BrowseResponse(_message.Message):
    __slots__ = ("deliveries", "next_offset", "min_offset", "max_offset", "looked_at", "next_page_token")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MIN_OFFSET_FIELD_NUMBER: _ClassVar[int]
    MAX_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_offset: int
    min_offset: int
    max_offset: int
    looked_at: int
    next_page_token: str
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_offset: _Optional[int] = ..., min_offset: _Optional[int] = ..., max_offset: _Optional[int] = ..., looked_at: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class ListLeasesRequest(_message.Message):
    __slots__ = ("group", "topic", "max_leases", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_LEASES_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    topic: str
    max_leases: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., topic: _Optional[str] = ..., max_leases: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListLeasesResponse(_message.Message):
    __slots__ = ("leases", "total", "next_page_token")
    LEASES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    total: int
    next_page_token: str
    def __init__(self, leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ..., total: _Optional[int] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("checkpoint_id", "group", "topic", "client_id", "owner", "popped_ms", "due_ms", "messages", "undone", "kind", "lease_id")
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CLIENT_ID_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    POPPED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    UNDONE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    checkpoint_id: int
    group: str
    topic: str
    client_id: str
    owner: str
    popped_ms: int
    due_ms: int
    messages: int
    undone: int
    kind: str
    lease_id: str
    def __init__(self, checkpoint_id: _Optional[int] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ..., client_id: _Optional[str] = ..., owner: _Optional[str] = ..., popped_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., messages: _Optional[int] = ..., undone: _Optional[int] = ..., kind: _Optional[str] = ..., lease_id: _Optional[str] = ...) -> None: ...

class EndLeaseRequest(_message.Message):
    __slots__ = ("group", "checkpoint_id", "lease_id")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_ID_FIELD_NUMBER: _ClassVar[int]
    LEASE_ID_FIELD_NUMBER: _ClassVar[int]
    group: str
    checkpoint_id: int
    lease_id: str
    def __init__(self, group: _Optional[str] = ..., checkpoint_id: _Optional[int] = ..., lease_id: _Optional[str] = ...) -> None: ...

class EndLeaseResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class ListAccessKeysRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListAccessKeysResponse(_message.Message):
    __slots__ = ("enabled", "access_keys", "caller")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    ACCESS_KEYS_FIELD_NUMBER: _ClassVar[int]
    CALLER_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    access_keys: _containers.RepeatedCompositeFieldContainer[AccessKey]
    caller: str
    def __init__(self, enabled: bool = ..., access_keys: _Optional[_Iterable[_Union[AccessKey, _Mapping]]] = ..., caller: _Optional[str] = ...) -> None: ...

class AccessKey(_message.Message):
    __slots__ = ("name", "allow", "expires_ms", "secrets", "certificates", "connections_max", "calls_per_s_max", "bytes_in_flight_max", "connections", "bytes_in_flight", "calls", "limited")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALLOW_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    SECRETS_FIELD_NUMBER: _ClassVar[int]
    CERTIFICATES_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_MAX_FIELD_NUMBER: _ClassVar[int]
    CALLS_PER_S_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FLIGHT_MAX_FIELD_NUMBER: _ClassVar[int]
    CONNECTIONS_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    LIMITED_FIELD_NUMBER: _ClassVar[int]
    name: str
    allow: _containers.RepeatedScalarFieldContainer[str]
    expires_ms: int
    secrets: int
    certificates: _containers.RepeatedScalarFieldContainer[str]
    connections_max: int
    calls_per_s_max: int
    bytes_in_flight_max: int
    connections: int
    bytes_in_flight: int
    calls: int
    limited: int
    def __init__(self, name: _Optional[str] = ..., allow: _Optional[_Iterable[str]] = ..., expires_ms: _Optional[int] = ..., secrets: _Optional[int] = ..., certificates: _Optional[_Iterable[str]] = ..., connections_max: _Optional[int] = ..., calls_per_s_max: _Optional[int] = ..., bytes_in_flight_max: _Optional[int] = ..., connections: _Optional[int] = ..., bytes_in_flight: _Optional[int] = ..., calls: _Optional[int] = ..., limited: _Optional[int] = ...) -> None: ...

class ListOwnersRequest(_message.Message):
    __slots__ = ("group", "page_size", "page_token")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    group: str
    page_size: int
    page_token: str
    def __init__(self, group: _Optional[str] = ..., page_size: _Optional[int] = ..., page_token: _Optional[str] = ...) -> None: ...

class ListOwnersResponse(_message.Message):
    __slots__ = ("owners", "next_page_token")
    OWNERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_PAGE_TOKEN_FIELD_NUMBER: _ClassVar[int]
    owners: _containers.RepeatedCompositeFieldContainer[OwnerStats]
    next_page_token: str
    def __init__(self, owners: _Optional[_Iterable[_Union[OwnerStats, _Mapping]]] = ..., next_page_token: _Optional[str] = ...) -> None: ...

class OwnerStats(_message.Message):
    __slots__ = ("group", "owner", "generation", "acked_epoch", "lease_until_ms", "released", "tokens", "messages", "last_seen_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ACKED_EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEASE_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    owner: str
    generation: int
    acked_epoch: int
    lease_until_ms: int
    released: bool
    tokens: int
    messages: int
    last_seen_ms: int
    def __init__(self, group: _Optional[str] = ..., owner: _Optional[str] = ..., generation: _Optional[int] = ..., acked_epoch: _Optional[int] = ..., lease_until_ms: _Optional[int] = ..., released: bool = ..., tokens: _Optional[int] = ..., messages: _Optional[int] = ..., last_seen_ms: _Optional[int] = ...) -> None: ...

class ErrorInfo(_message.Message):
    __slots__ = ("code", "message", "field", "retryable", "retry_after_ms", "action")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RETRYABLE_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    code: Code
    message: str
    field: str
    retryable: bool
    retry_after_ms: int
    action: str
    def __init__(self, code: _Optional[_Union[Code, str]] = ..., message: _Optional[str] = ..., field: _Optional[str] = ..., retryable: bool = ..., retry_after_ms: _Optional[int] = ..., action: _Optional[str] = ...) -> None: ...
