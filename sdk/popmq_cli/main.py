"""Entry point of the command line."""


def main() -> None:
    """Reserved."""
