"""What popmq[all] is made of, from the environment that it is installed in.

    python scripts/supply_chain.py requirements      every distribution that popmq[all] needs, as name==version

The environment has tools and tests besides; only what the extras need, directly or not, is listed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution

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
        key = re.sub(r"[-_.]+", "-", wanted.name).lower()
        if key == ROOT:  # popmq[cli] within popmq[server]
            yield from needed(key, frozenset(wanted.extras), seen)
        elif key not in seen:
            try:
                seen[key] = distribution(wanted.name).version
            except PackageNotFoundError:
                yield wanted.name
                continue
            yield from needed(wanted.name, frozenset(wanted.extras), seen)


def main() -> int:
    """Prints the list; 1 when something is missing."""
    seen: dict[str, str] = {}
    missing = sorted({*needed(ROOT, frozenset({"all"}), seen)})
    print("\n".join(f"{name}=={version}" for name, version in sorted(seen.items())))
    for name in missing:
        print(f"supply_chain: {name} is not installed: make setup", file=sys.stderr)
    return bool(missing)


if __name__ == "__main__":
    sys.exit(main())
