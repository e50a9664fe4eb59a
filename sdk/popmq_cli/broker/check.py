"""`popmq check`: the data folder of a stopped broker, from the extra `server`."""

import pathlib
import sys

import click

#: Exit codes for a folder that cannot be opened: of the checker, and of the command line.
_CANNOT_OPEN, _REFUSED = 78, 1


@click.command()
@click.argument("data", metavar="[DIR]", default="popmq-data")
@click.option("--repair", is_flag=True, help="Write a new data file with all readable entries; keep the damaged one.")
def check(data: str, repair: bool) -> None:
    """Check the store of a stopped broker.

    Without DIR it takes ./popmq-data. It reads every record and every key, and prints each broken invariant as a
    sentence. It ends with 0 if there is none, and with 1 if there is one or the folder cannot be opened, for example
    because a broker runs on it.

    With --repair it writes all readable entries of a damaged file into a new one, and prints what it left out and what
    is still broken. The damaged file stays beside the new one.

    \b
    Examples:
      popmq check
      popmq check /var/lib/popmq
      popmq check --repair /var/lib/popmq
    """
    try:
        from popmq_server.embedded.fsck import check as fsck
        from popmq_server.embedded.fsck import repair as rescue
    except ImportError as error:
        click.echo(f'`popmq check` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(_REFUSED)
    code = rescue.main(pathlib.Path(data)) if repair else fsck.main([data])
    sys.exit(_REFUSED if code == _CANNOT_OPEN else code)
