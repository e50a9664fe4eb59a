"""Prints a pip constraint for the oldest version of every dependency that pyproject.toml allows.

    python scripts/floor.py > floor.txt && pip install '.[all]' --constraint floor.txt

`name[extra]>=1.2` becomes `name==1.2`: if that version was never published, the installation fails, as it should.
"""

import re
import tomllib
from pathlib import Path

REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[\w,-]+\])?>=(?P<floor>[\w.]+)")


def main() -> None:
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    for requirement in [*project["dependencies"], *(line for extra in extras for line in extra)]:
        if not requirement.startswith("popmq["):
            print(floor(requirement))


def floor(requirement: str) -> str:
    """Raises SystemExit for a requirement without `>=`: pip would install its newest version unnoticed."""
    match = REQUIREMENT.fullmatch(requirement)
    if match is None:
        raise SystemExit(f"floor: {requirement} names no oldest version")
    return f"{match['name']}=={match['floor']}"


if __name__ == "__main__":
    main()
