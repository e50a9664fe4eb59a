"""Reasons of dead letters, by which they are counted and chosen."""

#: Length of a headline, the first part of a reason.
HEADLINE_CHARACTERS = 200


def headline(reason: str) -> str:
    """One line of a reason: of a Python traceback the last one, which has the error, else the first."""
    said = [text for text in reason.splitlines() if text.strip()] or [""]
    return (said[-1] if said[0].startswith("Traceback") else said[0]).rstrip()[:HEADLINE_CHARACTERS]
