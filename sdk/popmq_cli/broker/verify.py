"""`popmq verify`: the broker's promises, tested on this machine; from the extra `server`."""

import math
import pathlib
import sys
import time

import click

#: Those of popmq_verify.stages, which comes with the broker.
STAGES = "kills, 'power cuts', 'full disk', 'slow disk', 'clock jumps'"
#: Exit codes for settings that cannot be used, and for a test with findings.
_SETTINGS, _FOUND = 2, 1


@click.command()
@click.option("--config", metavar="FILE", help="Settings of `popmq serve` (TOML) to test with.  [env: POPMQ_CONFIG]")
@click.option("--minutes", type=click.FloatRange(0.1, 1440), default=1.0, show_default=True, help="How long to test.")
@click.option("--only", "stages", multiple=True, metavar="STAGE", help=f"One of {STAGES}; may be repeated.")
@click.option("--scratch", metavar="DIR", help="Test below this folder.  [default: beside the data folder]")
@click.option("--report", metavar="FILE", default="popmq-verify.html", show_default=True, help="The page to write.")
@click.option("--seed", type=click.IntRange(0), help="Repeat a test: its page names the seed.  [default: random]")
def verify(
    config: str | None, minutes: float, stages: tuple[str, ...], scratch: str | None, report: str, seed: int | None
) -> None:
    """Test the broker's guarantees on this machine.

    It runs brokers with your settings in scratch folders, never on your data. It kills them, cuts their power, fills or
    slows their disk, and sets their clock. Meanwhile programs send, pop and ack, and record every answer. The report
    says which messages were lost, repeated, overlapping or late.

    Power cuts, the slow disk and the clock need a C compiler and Linux; without them they are skipped, and the report
    says so. It does not use ports, TLS, keys and metrics of the settings, so no other client reaches these brokers.

    It ends with 0 if it found nothing, else with 1. It ends with 2 for settings of a gateway, which keeps no messages:
    `popmq cluster check` looks at its brokers.

    \b
    Examples:
      popmq verify
      popmq verify --config /etc/popmq/popmq.toml --minutes 10
      popmq verify --only kills --only "power cuts" --scratch /mnt/new-disk
    """
    if math.isnan(minutes):  # in no range, and beyond no end of it
        raise click.BadParameter("nan is no number of minutes", param_hint="--minutes")
    try:
        from popmq_verify import report as reports
        from popmq_verify import verifying
        from popmq_verify.stages import Outcome, run_all
    except ImportError as error:
        click.echo(f'`popmq verify` needs the broker: pip install "popmq[server]" ({error})', err=True)
        sys.exit(_FOUND)
    try:
        plan = verifying.plan(config, minutes, scratch, seed)
        chosen = verifying.chosen(stages)
        verifying.refuse_unwritable(pathlib.Path(report))
    except ValueError as error:
        click.echo(f"popmq: {error}", err=True)
        sys.exit(_SETTINGS)
    click.echo(f"below {plan.folder}, with {verifying.settings_of(plan)}, seed {plan.seed}")
    began = time.monotonic()
    click.echo(f"{reports.lengths(plan.scale)}: {', '.join(chosen)} …")
    done = 0

    def ended(outcome: Outcome) -> None:
        nonlocal done
        done += 1
        click.echo(f"[{done}/{len(chosen)}] " + "\n".join(reports.lines(outcome)))

    outcomes = run_all(plan, chosen, ended)
    verdict = reports.sentence(outcomes)
    how = f"{verifying.settings_of(plan)} · {reports.lengths(plan.scale)}"
    reports.write(pathlib.Path(report), outcomes, how, plan.seed)
    click.secho(f"{verdict} ({time.monotonic() - began:.0f} s; {report})", fg="green" if verdict[0] == "P" else "red")
    sys.exit(0 if verdict[0] == "P" else _FOUND)
