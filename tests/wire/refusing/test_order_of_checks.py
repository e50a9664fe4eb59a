"""Of several faults of a request the first is reported, in one order whatever the call: topic, group, the rest."""

from typing import Any

import pytest
from google.protobuf.descriptor import FieldDescriptor

from popmq_proto.rocketmq import definition_pb2 as v2pb
from popmq_proto.v1 import popmq_pb2 as pb
from tests.wire.reading.v2_pull import pull
from tests.wire.rocketmq.v2 import HERE, V2, resource
from tests.wire.stubs import CALL_S, GROUP, TOPIC, Stubs, refusal

#: What a request must have beside the names, to be asked of the engine at all.
FIELDS: dict[str, dict[str, Any]] = {
    "AttachOwner": {"owner": "o", "lease_ms": 60_000},
    "CloneOffsets": {"from_group": "nobody"},
    "LockQueues": {"client_id": "c", "queues": [0]},
    "QueryAssignment": {"client_id": "c"},
    "ResetOffsets": {"offsets": {0: 0}},
    "ResumeMessageGroup": {"message_group": "x"},
    "SendBack": {"messages": [pb.SentBack()]},
    "SetFilter": {"filter": pb.Filter(tag="*")},
    "UnlockQueues": {"client_id": "c"},
    "UpdateOffsets": {"offsets": {0: 0}},
    "Why": {"message_id": "x"},
}
#: Its topic chooses dead letters by their origin, which may be gone.
NOT_THE_TOPIC_ITSELF = {"RedriveDeadLetters", "DiscardDeadLetters", "ListDeadLetterReasons"}
#: (topic, group) → the code.
FAULTS = {("nowhere", "nobody"): "TOPIC", ("nowhere", GROUP): "TOPIC", (TOPIC, "nobody"): "GROUP"}


def naming_both() -> list[tuple[str, str]]:
    """(service, call) of the contract whose requests name a topic and a group."""
    found = []
    for service in ("Broker", "Admin"):
        for method in pb.DESCRIPTOR.services_by_name[service].methods:
            fields = method.input_type.fields_by_name
            texts = [fields[name].type for name in ("topic", "group") if name in fields]
            if texts == [FieldDescriptor.TYPE_STRING] * 2 and method.name not in NOT_THE_TOPIC_ITSELF:
                found.append((service, method.name))
    return found


@pytest.mark.parametrize(("service", "call"), naming_both())
def test_a_call_looks_for_the_topic_and_then_for_the_group(shop: Stubs, service: str, call: str) -> None:
    method = pb.DESCRIPTOR.services_by_name[service].methods_by_name[call]
    kind: Any = getattr(pb, method.input_type.name)
    ask = getattr(shop.broker if service == "Broker" else shop.admin, call)
    for (topic, group), missing in FAULTS.items():
        request = kind(topic=topic, group=group, **FIELDS.get(call, {}))
        assert refusal(ask, request).code == f"{missing}_NOT_FOUND", (topic, group)


@pytest.mark.parametrize("call", ["ReceiveMessage", "QueryAssignment", "GetOffset", "UpdateOffset", "PullMessage"])
def test_a_call_of_the_other_protocol_does_the_same(shop: Stubs, v2: V2, call: str) -> None:
    for (topic, group), missing in FAULTS.items():
        fields: dict[str, Any] = {"message_queue": v2pb.MessageQueue(topic=resource(topic), id=0)}
        if call == "ReceiveMessage":
            told = v2pb.Code.Name(v2.receive(topic=topic, group=group, queue=0).code)
        elif call == "PullMessage":
            told = pull(v2, topic=topic, group=group)[0]
        else:
            if call == "QueryAssignment":
                fields = {"topic": resource(topic), "endpoints": HERE}
            told = v2.code(call, group=resource(group), **fields)
        assert told.removeprefix("CONSUMER_") == f"{missing}_NOT_FOUND", (topic, group)


@pytest.mark.capability("filters")
def test_permission_mode_and_filter_are_checked_in_this_order_after_the_names(shop: Stubs) -> None:
    pop = pb.PopRequest(topic=TOPIC, group=GROUP, filter=pb.Filter(tag="b"))
    shop.pop(filter=pb.Filter(tag="a"))
    shop.admin.SetConsumeMode(pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=pb.PULL), timeout=CALL_S)
    shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, permission=pb.NO_ACCESS)), timeout=CALL_S)
    assert refusal(shop.broker.Pop, pop).code == "FORBIDDEN"
    shop.admin.UpdateTopic(pb.UpdateTopicRequest(topic=pb.Topic(name=TOPIC, permission=pb.READ_WRITE)), timeout=CALL_S)
    assert refusal(shop.broker.Pop, pop).code == "WRONG_CONSUME_MODE"
    shop.admin.SetConsumeMode(pb.SetConsumeModeRequest(topic=TOPIC, group=GROUP, mode=pb.POP), timeout=CALL_S)
    assert refusal(shop.broker.Pop, pop).code == "FILTER_CONFLICT"
