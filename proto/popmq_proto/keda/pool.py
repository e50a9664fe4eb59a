"""The descriptor pool of these stubs: see proto/generate.py."""

from google.protobuf import duration_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool

POOL = DescriptorPool()
for well_known in (duration_pb2, timestamp_pb2):
    POOL.AddSerializedFile(well_known.DESCRIPTOR.serialized_pb)
