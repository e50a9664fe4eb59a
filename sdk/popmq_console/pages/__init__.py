"""The pages and actions by their paths. A page returns the values of its template, an action an Outcome."""

from popmq_console.asking import Action, Page
from popmq_console.pages import clients, dead_letters, groups, later, messages, overview, schedules, topics

#: The navigation: address, title.
NAVIGATION = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
    ("/sessions", "Sessions"),
    ("/leases", "Leases"),
    ("/messages", "Messages"),
    ("/dead-letters", "Dead letters"),
    ("/message-groups", "Message groups"),
    ("/owners", "Owners"),
    ("/delayed", "Delayed"),
    ("/half", "Half messages"),
    ("/schedules", "Schedules"),
    ("/keys", "Access keys"),
)
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
    "/dead-letters": (dead_letters.groups, "dead_letters.html"),
    "/dead-letters/group": (dead_letters.of_group, "dead_letters_group.html"),
    "/message-groups": (later.message_groups, "message_groups.html"),
    "/delayed": (later.delayed, "delayed.html"),
    "/half": (later.transactions, "half.html"),
    "/schedules": (schedules.schedules, "schedules.html"),
    "/schedule": (schedules.schedule, "schedule.html"),
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
    "/group/pause": groups.pause,
    "/group/delete": groups.delete,
    "/group/reset": groups.reset,
    "/group/filter": groups.filter,
    "/leases/end": clients.end_lease,
    "/owners/release": clients.release_owner,
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
