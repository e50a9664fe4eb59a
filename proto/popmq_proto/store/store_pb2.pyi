from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

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

class DeliveryView(_message.Message):
    __slots__ = ("message", "handle", "attempt", "queue", "offset", "stored_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    HANDLE_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    message: bytes
    handle: str
    attempt: int
    queue: int
    offset: int
    stored_ms: int
    def __init__(self, message: _Optional[bytes] = ..., handle: _Optional[str] = ..., attempt: _Optional[int] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class DeliveriesView(_message.Message):
    __slots__ = ("deliveries",)
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[DeliveryView]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[DeliveryView, _Mapping]]] = ...) -> None: ...
