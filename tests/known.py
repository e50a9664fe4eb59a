"""Numbers that an engine may not know, of one that does."""


def known(number: int | None) -> int:
    """The number."""
    assert number is not None
    return number
