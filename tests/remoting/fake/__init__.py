"""A RocketMQ cluster in the test's own process: name servers and brokers, with faults on demand. No Java.

    FakeCluster ─▶ FakeNameServer, FakeBroker ─▶ FakeServer (frames, connections, faults)

It behaves as a client can tell: logs, leases and offsets are lists and dicts in memory. Time is the event loop's, so it
jumps with it.
"""
