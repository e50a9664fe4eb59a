"""What popmq[all] is made of, from the environment that it is installed in.

    python scripts/supply_chain.py requirements      every distribution that popmq[all] needs, as name==version
    python scripts/supply_chain.py bom FILE          a CycloneDX list of the environment, without what is not needed

The environment has tools and tests besides; only what the extras need, directly or not, is listed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

ROOT = "popmq"


def needed(name: str, extras: frozenset[str], seen: dict[str, str]) -> Iterator[str]:
    """Adds the versions of what a distribution needs to `seen`; yields what is not installed."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        yield name
        return
    for text in found.requires or ():
        wanted = Requirement(text)
        if wanted.marker and not any(wanted.marker.evaluate({"extra": extra}) for extra in extras | {""}):
            continue
        key = _key(wanted.name)
        if key == ROOT:  # popmq[cli] within popmq[server]
            yield from needed(key, frozenset(wanted.extras), seen)
        elif key not in seen:
            try:
                seen[key] = distribution(wanted.name).version
            except PackageNotFoundError:
                yield wanted.name
                continue
            yield from needed(wanted.name, frozenset(wanted.extras), seen)


def pruned(bom: dict[str, Any], names: Collection[str], version: str) -> dict[str, Any]:
    """The list with only these distributions; its root gets a version.

    Its own edges would not do: they follow the extras of others too, as far as those are installed.
    """
    root = bom["metadata"]["component"] | {"version": version}
    components = [one for one in bom["components"] if _key(one["name"]) in names]
    kept = {root["bom-ref"], *(one["bom-ref"] for one in components)}
    return bom | {
        "metadata": bom["metadata"] | {"component": root},
        "components": components,
        "dependencies": [
            one | {"dependsOn": [ref for ref in one.get("dependsOn", ()) if ref in kept]}
            for one in bom["dependencies"]
            if one["ref"] in kept
        ],
    }


def _key(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main(words: list[str]) -> int:
    """Prints the list; 1 when something is missing."""
    seen: dict[str, str] = {}
    missing = sorted({*needed(ROOT, frozenset({"all"}), seen)})
    if words[0] == "bom":
        bom = json.loads(Path(words[1]).read_text())
        print(json.dumps(pruned(bom, seen, distribution(ROOT).version), indent=1))
    else:
        print("\n".join(f"{name}=={version}" for name, version in sorted(seen.items())))
    for name in missing:
        print(f"supply_chain: {name} is not installed: make setup", file=sys.stderr)
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
