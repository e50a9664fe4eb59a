"""Writes the synchronous half of the SDK from the asynchronous one, popmq/_async → popmq/_sync, and what type checkers
read of the package: popmq/__init__.py → popmq/__init__.pyi.

    python sdk/twin.py            writes
    python sdk/twin.py --check    says which files are not what it would write; exit code 1

What waits and runs differently with threads is written by hand in both folders, in the same words (HAND_WRITTEN). The
rest would be the same text twice, and so is written once. A rule that no file uses is an error: it is out of date.
"""

import ast
import pathlib
import re
import subprocess
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "sdk/popmq"
HAND_WRITTEN = {"__init__.py", "concurrency.py", "channel.py", "connections.py", "grpcio_channel.py"}
HEADER = "# Written by sdk/twin.py from {name}: change that one.\n"

RULES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\basync (def|with|for)\b", r"\1"),
        (r"\bawait ", ""),
        (r"Async(?=[A-Z])", ""),
        (r"\b_async\b", "_sync"),
        (r"__a(enter|exit|iter|next)__", r"__\1__"),
        (r"Generator\[Delivery, None\]", "Generator[Delivery, None, None]"),
    )
]


def twin(text: str, name: str, used: set[str]) -> str:
    """The synchronous text; adds the rules that it took to `used`."""
    for pattern, replacement in RULES:
        text, count = pattern.subn(replacement, text)
        if count:
            used.add(pattern.pattern)
    return tidy(HEADER.format(name=f"popmq/_async/{name}") + text)


def tidy(text: str) -> str:
    """In the form of the house: shorter words make other lines, and imports of `_sync` another order."""
    for command in (["check", "--quiet", "--select=I,RUF022", "--fix"], ["format", "--quiet"]):
        ruff = [sys.executable, "-m", "ruff", *command, "--stdin-filename=sdk/popmq/_sync/twin.py", "-"]
        text = subprocess.run(ruff, input=text, capture_output=True, text=True, check=True, cwd=ROOT).stdout
    return text


def twins() -> dict[pathlib.Path, str]:
    """Every file that belongs to popmq/_sync, and its text."""
    used: set[str] = set()
    source = PACKAGE / "_async"
    files = {
        PACKAGE / "_sync" / path.relative_to(source): twin(path.read_text(), path.relative_to(source).as_posix(), used)
        for path in sorted(source.rglob("*.py"))
        if path.name not in HAND_WRITTEN
    }
    unused = {pattern.pattern for pattern, _ in RULES} - used
    if unused:
        raise SystemExit(f"twin: rules that no file uses: {', '.join(sorted(unused))}")
    return files


def stub() -> str:
    """The public names of the package as imports: at run time it imports a name when it is first used."""
    values: dict[str, Any] = {}
    for node in ast.parse((PACKAGE / "__init__.py").read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in ("_NAMES", "_SUBMODULES"):
            values[ast.unparse(node.targets[0])] = ast.literal_eval(node.value)
    found = {name: module for module, names in values["_NAMES"].items() for name in names.split()}
    found |= dict.fromkeys(("errors", *values["_SUBMODULES"]), "popmq")
    imports = "\n".join(f"from {module} import {name} as {name}" for name, module in found.items())
    exported = [name for name, module in found.items() if module != "popmq" or name == "errors"]
    return tidy(f"{HEADER.format(name='popmq/__init__.py')}{imports}\n\n__version__: str\n__all__ = {exported}\n")


def written() -> dict[pathlib.Path, str]:
    """Every file that this program writes, and its text."""
    return {**twins(), PACKAGE / "__init__.pyi": stub()}


def main(arguments: list[str]) -> int:
    """Exit code: 0 fine, 1 out of date."""
    stale = [path for path, text in written().items() if not path.exists() or path.read_text() != text]
    if "--check" in arguments:
        for path in stale:
            print(f"twin: {path.relative_to(ROOT)} is out of date: run python sdk/twin.py")
        return int(bool(stale))
    for path in stale:
        path.write_text(written()[path])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
