"""The pages and actions by their paths. A page returns the values of its template, an action an Outcome."""

from popmq_console.asking import Action, Page
from popmq_console.logins import Login
from popmq_console.pages import (
    brokers,
    clients,
    dead_letters,
    fair_keys,
    groups,
    later,
    messages,
    overview,
    schedules,
    sending,
    topics,
)

#: The navigation: address, title, and the capability without which the page is not offered; "" = every broker has it.
NAVIGATION = (
    ("/", "Overview", ""),
    ("/topics", "Topics", ""),
    ("/groups", "Groups", ""),
    ("/sessions", "Clients", ""),
    ("/leases", "Leases", "list_leases"),
    ("/messages", "Messages", "browse"),
    ("/dead-letters", "Dead letters", "browse"),
    ("/message-groups", "Message groups", "message_groups"),
    ("/owners", "Owners", "owners"),
    ("/delayed", "Delayed", "list_delayed"),
    ("/half", "Half messages", "list_transactions"),
    ("/schedules", "Schedules", "schedules"),
    ("/brokers", "Brokers", ""),
    ("/keys", "Access keys", ""),
)


def offered(login: Login | None) -> list[tuple[str, str]]:
    """Address and title of the pages that the navigation shows: a page of a cluster's brokers only if there is one."""
    return [
        (address, title)
        for address, title, needed in NAVIGATION
        if login is None or (login.has(needed) and (address != "/brokers" or login.is_cluster))
    ]


#: Address → the page and its template.
PAGES: dict[str, tuple[Page, str]] = {
    "/": (overview.overview, "overview.html"),
    "/topics": (topics.topics, "topics.html"),
    "/topic": (topics.topic, "topic.html"),
    "/groups": (groups.groups, "groups.html"),
    "/group": (groups.group, "group.html"),
    "/sessions": (clients.sessions, "sessions.html"),
    "/leases": (clients.leases, "leases.html"),
    "/owners": (clients.owners, "owners.html"),
    "/messages": (messages.messages, "messages.html"),
    "/message": (messages.message, "message.html"),
    "/messages/why": (messages.why, "why.html"),
    "/message/new": (sending.form, "send.html"),
    "/dead-letters": (dead_letters.groups, "dead_letters.html"),
    "/dead-letters/group": (dead_letters.of_group, "dead_letters_group.html"),
    "/message-groups": (later.message_groups, "message_groups.html"),
    "/delayed": (later.delayed, "delayed.html"),
    "/half": (later.transactions, "half.html"),
    "/schedules": (schedules.schedules, "schedules.html"),
    "/schedule": (schedules.schedule, "schedule.html"),
    "/brokers": (brokers.brokers, "brokers.html"),
    "/keys": (clients.keys, "keys.html"),
}
ACTIONS: dict[str, Action] = {
    "/topics/create": topics.create,
    "/topic/change": topics.change,
    "/topic/permit": topics.permit,
    "/topic/purge": topics.purge,
    "/topic/delete": topics.delete,
    "/groups/create": groups.create,
    "/group/change": groups.change,
    "/group/fair-keys": fair_keys.change,
    "/group/pause": groups.pause,
    "/group/delete": groups.delete,
    "/group/reset": groups.reset,
    "/group/filter": groups.filter,
    "/messages/send": sending.send,
    "/leases/end": clients.end_lease,
    "/owners/release": clients.release_owner,
    "/dead-letters/discard": dead_letters.discard,
    "/dead-letters/redrive": dead_letters.redrive,
    "/dead-letters/redrive-all": dead_letters.redrive_all,
    "/dead-letters/stop": dead_letters.stop,
    "/message-groups/resume": later.resume,
    "/delayed/recall": later.recall,
    "/half/end": later.end,
    "/schedules/create": schedules.create,
    "/schedule/pause": schedules.pause,
    "/schedule/run": schedules.run,
    "/schedule/delete": schedules.delete,
}
