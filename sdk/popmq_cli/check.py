"""`popmq check`: the data folder of a stopped broker, from the extra `server`."""

import sys

import click

#: What the checker says of a folder that it cannot open, and what the command line says for it.
_CANNOT_OPEN, _REFUSED = 78, 1


@click.command()
@click.argument("data", metavar="DIR", default="popmq-data")
def check(data: str) -> None:
    """Check the store of a stopped broker.

    Reads every record and every key, and prints each broken invariant as a sentence. Ends with 0 when there is none,
    with 1 when there is one, or when the folder cannot be opened: a broker may be running on it.

    \b
    Examples:
      popmq check
      popmq check /var/lib/popmq
    """
    try:
        from popmq_server.fsck.check import main
    except ImportError as error:
        click.echo(f'`popmq check` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(_REFUSED)
    code = main([data])
    sys.exit(_REFUSED if code == _CANNOT_OPEN else code)
