"""`popmq compact`: a smaller data file for a stopped broker, from the extra `server`."""

import sys

import click

#: Exit codes for a folder that cannot be compacted: of the module, and of the command line.
_CANNOT, _REFUSED = 78, 1


@click.command()
@click.argument("data", metavar="[DIR]", default="popmq-data")
def compact(data: str) -> None:
    """Shrink the data file of a stopped broker.

    Without DIR it takes ./popmq-data. A running broker uses freed pages again, but its file does not shrink. This
    command checks the store, writes a copy without free pages beside it, compares the two, and replaces the file with
    one rename. At any moment the old or the new file is complete. It needs free disk for the bytes in use and 64 MiB
    more. If the store is broken, a broker runs on it, or there is too little room, it changes nothing and ends with 1.

    \b
    Examples:
      popmq compact
      popmq compact /var/lib/popmq
    """
    try:
        from popmq_server.embedded.fsck.compact import main
    except ImportError as error:
        click.echo(f'`popmq compact` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(_REFUSED)
    code = main([data])
    sys.exit(_REFUSED if code == _CANNOT else code)
