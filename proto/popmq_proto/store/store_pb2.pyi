from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class SendView(_message.Message):
    __slots__ = ("topic", "messages", "producer_id", "request_number")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    REQUEST_NUMBER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    producer_id: str
    request_number: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[bytes]] = ..., producer_id: _Optional[str] = ..., request_number: _Optional[int] = ...) -> None: ...

class StageView(_message.Message):
    __slots__ = ("topic", "messages", "sink", "batch", "stage_id", "piece")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    SINK_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STAGE_ID_FIELD_NUMBER: _ClassVar[int]
    PIECE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    sink: str
    batch: int
    stage_id: str
    piece: int
    def __init__(self, topic: _Optional[str] = ..., messages: _Optional[_Iterable[bytes]] = ..., sink: _Optional[str] = ..., batch: _Optional[int] = ..., stage_id: _Optional[str] = ..., piece: _Optional[int] = ...) -> None: ...

class SettleView(_message.Message):
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
    changes: _containers.RepeatedScalarFieldContainer[bytes]
    sends: _containers.RepeatedScalarFieldContainer[bytes]
    producer_id: str
    request_number: int
    results: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, group: _Optional[str] = ..., handles: _Optional[_Iterable[str]] = ..., changes: _Optional[_Iterable[bytes]] = ..., sends: _Optional[_Iterable[bytes]] = ..., producer_id: _Optional[str] = ..., request_number: _Optional[int] = ..., results: _Optional[_Iterable[bytes]] = ...) -> None: ...
