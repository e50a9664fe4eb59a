"""The methods of the contract: the path of each, and how its answer is read."""

import functools
from collections.abc import Callable
from typing import Any

from google.protobuf.message import DecodeError

from popmq_http2 import Code
from popmq_http2.client.call import CallFailed, Status
from popmq_proto.v1 import popmq_pb2 as pb


@functools.cache
def rpc(method: str) -> tuple[str, Callable[[bytes], Any]]:
    """(the path of "Service.Method", the function that reads its answer and raises CallFailed)."""
    service, name = method.split(".")
    answer = pb.DESCRIPTOR.services_by_name[service].methods_by_name[name].output_type.name
    parse = getattr(pb, answer).FromString

    def read(raw: bytes) -> Any:
        try:
            return parse(raw)
        except DecodeError:
            raise CallFailed(Status(Code.INTERNAL, f"the answer to {method} is no {answer}")) from None

    return f"/{pb.DESCRIPTOR.package}.{service}/{name}", read
