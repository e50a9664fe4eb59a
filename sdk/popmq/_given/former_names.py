"""Names of calls in previews, before the namespaces. A program that was written then runs on, and is warned.

`client.leases()`, `client.owners()`, `client.sessions()` and `client.access_keys()` have no row: their names are those
of namespaces now.
"""

import warnings
from operator import attrgetter

#: Former name of a method of the client → namespace.method.
NOW = {
    "create_topic": "topics.create",
    "get_topic": "topics.get",
    "list_topics": "topics.list",
    "update_topic": "topics.update",
    "delete_topic": "topics.delete",
    "purge_topic": "topics.purge",
    "create_group": "groups.create",
    "get_group": "groups.get",
    "list_groups": "groups.list",
    "update_group": "groups.update",
    "delete_group": "groups.delete",
    "subscriptions": "groups.subscriptions",
    "set_filter": "groups.set_filter",
    "set_consume_mode": "groups.set_consume_mode",
    "list_message_groups": "message_groups.list",
    "resume_message_group": "message_groups.resume",
    "look_up": "messages.look_up",
    "why": "messages.why",
    "browse": "messages.browse",
    "peek": "messages.peek",
    "recall": "messages.recall",
    "list_delayed": "messages.list_delayed",
    "redrive": "dead_letters.redrive",
    "discard": "dead_letters.discard",
    "dead_letter_reasons": "dead_letters.reasons",
    "query_offsets": "offsets.query",
    "update_offsets": "offsets.update",
    "reset_offsets": "offsets.reset",
    "clone_offsets": "offsets.clone",
    "query_assignment": "queues.assignment",
    "lock_queues": "queues.lock",
    "unlock_queues": "queues.unlock",
    "end_lease": "leases.end",
    "attach_owner": "owners.attach",
    "renew_owner": "owners.renew",
    "release_owner": "owners.release",
    "ack_up_to": "owners.ack_up_to",
    "pop_sealed": "owners.pop_sealed",
    "heartbeat": "sessions.heartbeat",
    "client_stack": "sessions.stack",
    "verify_message": "sessions.verify_message",
    "create_schedule": "schedules.create",
    "get_schedule": "schedules.get",
    "list_schedules": "schedules.list",
    "delete_schedule": "schedules.delete",
    "pause_schedule": "schedules.pause",
    "resume_schedule": "schedules.resume",
    "run_schedule": "schedules.run",
    "transaction_checker": "transactions.on_check",
    "end_transaction": "transactions.end",
    "list_transactions": "transactions.list",
    "stage": "sinks.stage",
    "commit_batch": "sinks.commit",
    "drop_stages": "sinks.drop",
    "stats": "broker.stats",
    "history": "broker.history",
    "set_max_size": "broker.set_max_size",
    "backup": "broker.backup",
}


def by_former_name(client: object, name: str) -> object:
    """The call that has replaced a former one. Warns; raises AttributeError for any other name."""
    now = NOW.get(name)
    if now is None:
        raise AttributeError(f"{type(client).__name__!r} object has no attribute {name!r}", name=name, obj=client)
    warnings.warn(f"client.{name} is client.{now} now", DeprecationWarning, stacklevel=3)
    return attrgetter(now)(client)
