"""Reach: what a caller may receive, for commands on owners and leases, whose topics only the store knows."""

#: Pairs of a topic and a group, each a name, a prefix (`ord*`) or `*`: those of the grants of an access key.
Reach = tuple[tuple[str, str], ...]

#: Everything: of a broker without access keys, and of an operator.
EVERYWHERE: Reach = (("*", "*"),)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern covers a name."""
    return pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1]))


def covers(reach: Reach, topic: str, group: str) -> bool:
    """Whether the caller may receive this topic as this group."""
    return any(matches(of_topic, topic) and matches(of_group, group) for of_topic, of_group in reach)
