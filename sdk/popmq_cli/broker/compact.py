"""`popmq compact`: a smaller data file for a stopped broker, from the extra `server`."""

import sys

import click

#: Exit codes for a folder that cannot be compacted: of the module, and of the command line.
_CANNOT, _REFUSED = 78, 1


@click.command()
@click.argument("data", metavar="DIR", default="popmq-data")
def compact(data: str) -> None:
    """Shrink the data file of a stopped broker.

    A running broker uses freed pages again, but its file does not shrink. This checks the store, writes a copy without
    them beside it, compares the two, and puts the copy in its place: the old file, or the new one, is whole at any
    moment. It needs as much free disk as the store has in use, and 64 MiB. Ends with 1 when the store is broken, when a
    broker is running on it, or when there is too little room; then nothing was changed.

    \b
    Examples:
      popmq compact
      popmq compact /var/lib/popmq
    """
    try:
        from popmq_server.fsck.compact import main
    except ImportError as error:
        click.echo(f'`popmq compact` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(_REFUSED)
    code = main([data])
    sys.exit(_REFUSED if code == _CANNOT else code)
