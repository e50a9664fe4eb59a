"""The pages and actions by their paths. A page gives the values of its template, an action says what it did."""

from popmq_console.asking import Action, Page
from popmq_console.pages import groups, overview, topics

#: What stands beside every page: address, title.
NAVIGATION = (
    ("/", "Overview"),
    ("/topics", "Topics"),
    ("/groups", "Groups"),
)
#: Address → the page and its template.
PAGES: dict[str, tuple[Page, str]] = {
    "/": (overview.overview, "overview.html"),
    "/topics": (topics.topics, "topics.html"),
    "/topic": (topics.topic, "topic.html"),
    "/groups": (groups.groups, "groups.html"),
    "/group": (groups.group, "group.html"),
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
}
