"""Promises: what the contract says of calls that an engine serves, and that it may keep less strictly.

A missing capability is refused (capabilities.py). A weaker promise is served, and said beforehand: `EngineInfo.weaker`
has its name, and in one sentence how the engine keeps it.
"""

#: By name: what an engine promises that does not name it. The embedded engine names none.
PROMISES = {
    "dedup": "a Send repeated with its request number, or with an id that a topic stores once, is stored once",
    "ack": "after the OK of an Ack the group never gets the message again; a repeated ack, and one that comes too "
    "late, is refused with HANDLE_LAPSED",
    "uncounted": "a release with `uncounted` counts no attempt",
    "attempt_ids": "a Pop that is repeated with its attempt id gets the same messages",
    "redelivery": "a released message, or one whose lease has ended, is delivered again at once",
    "transactions": "a transaction can be ended until it is given up, and ends once: a second end of another kind is "
    "refused, none delivers twice",
    "recall": "a message whose recall was OK is never delivered",
    "statistics": "every number of GetStats is known and exact",
    "read_your_writes": "what an OK has stored is seen by the next read",
}
