"""Exactly-once sinks: a program that writes numbered batches, and may be killed and repeat any of them.

    refused = client.sinks.stage("orders", messages, sink="job-7", batch=12, stage_id=uuid)     in each task, any number
    client.sinks.commit("job-7", 12, [StageName(uuid, "orders", len(messages))])          in the driver, until it is OK

What is staged is on the broker's disk and in no queue. The commit of a batch makes all of it visible, once: a batch
that is not greater than the last one committed is a duplicate. A driver that does not know how its commit ended
repeats it, or stages the batch again under new ids and commits those.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageName:
    """One stage as its task left it: `messages` is how many were staged."""

    stage_id: str
    topic: str
    messages: int = 0


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """How a commit ended. `duplicate`: the batch, or a later one, was committed before, and nothing happened now."""

    messages: int
    duplicate: bool
