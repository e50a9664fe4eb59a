"""`popmq serve`: the broker itself, from the extra `server`."""

import importlib.util
import sys
from typing import Any

import click


class _Serve(click.Command):
    """Its options are the broker's table of settings, so that both show the same help and complete the same words."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        from popmq_server.settings import CONFIG, SETTINGS, Setting

        def option(setting: Setting) -> click.Option:
            flag, text = setting.flag, f"{setting.meaning}.  [default: {setting.shown}]"
            if setting.is_switch:
                return click.Option([f"{flag}/--no-{flag[2:]}"], default=None, help=text)
            return click.Option([flag], metavar=setting.metavar, multiple=setting.is_list, help=text)

        config = click.Option([f"--{CONFIG}"], metavar="FILE", help="Settings in TOML, a key for each option.")
        return [config, *map(option, SETTINGS), *super().get_params(ctx)]


@click.command(cls=_Serve)
def serve(**given: Any) -> None:
    """Run a broker on one data folder.

    It prints `popmq: ready on HOST:PORT` and its other ports when it accepts requests. SIGTERM and Ctrl-C drain it;
    running calls get up to 5 s. SIGHUP makes it read the settings again.

    Each option can also be a variable (POPMQ_MAX_SIZE for --max-size) or a key of the file of --config (max_size). An
    option takes precedence over the variable, the variable over the file.

    \b
    Examples:
      popmq serve
      popmq serve --data /var/lib/popmq --host 0.0.0.0 --max-size 200GiB
      popmq serve --host 10.0.0.5 --host ::1
      popmq serve --tls-cert cert.pem --tls-key key.pem --tls-only --access-keys keys.toml
      popmq serve --config /etc/popmq/popmq.toml
      popmq serve --data /tmp/try --port 0 --tls-port 0 --sync none
    """
    try:
        from popmq_server.__main__ import main

        # A broker imports these late, the SQL parser with its first filter: a missing one would fail half-way.
        for name in ("lmdb", "prometheus_client", "lark"):
            if importlib.util.find_spec(name) is None:
                raise ImportError(f"No module named {name!r}")
    except ImportError as error:
        click.echo(f'`popmq serve` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(1)
    sys.exit(main([word for name, value in given.items() for word in _words(name.replace("_", "-"), value)]))


def _words(flag: str, value: Any) -> list[str]:
    """An option as the broker's own flags; nothing for one that was not given."""
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    if isinstance(value, tuple):
        return [word for one in value for word in (f"--{flag}", one)]
    return [] if value is None else [f"--{flag}", value]
