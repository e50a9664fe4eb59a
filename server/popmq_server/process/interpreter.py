"""Whether this interpreter was built with profile-guided optimization (PGO). Without it a message takes more CPU.

    --enable-optimizations or -fprofile-use in sysconfig             ──▶ built with it
    neither; what GCC wrote into the debug information says:
        "GNU C11 12.2.0 … -O3 … -fprofile-use"                       ──▶ built with it
        "GNU C11 12.2.0 … -O3 …"                                     ──▶ built without
        nothing: it was removed, or another compiler writes less     ──▶ not known

sysconfig alone cannot tell: `make profile-opt`, with which Debian and others build, leaves no trace there.
"""

import contextlib
import mmap
import re
import struct
import sysconfig
from pathlib import Path

#: What the log says then.
SLOW = (
    "this Python was built without optimization (PGO), so each message takes more CPU; use one that has it, such as "
    "Debian's, that of the container image python, or one that uv installs"
)
#: Switches of GCC and Clang that compile by a profile.
_BY_PROFILE = re.compile(r"-f(profile(-instr|-sample)?-use|auto-profile|branch-probabilities)")
#: Variables of sysconfig with the switches of the interpreter's own files.
_SWITCHES = ("PY_CORE_CFLAGS", "CFLAGS_NODIST", "PY_CORE_LDFLAGS", "LDFLAGS_NODIST")
#: How a compiler names itself in the debug information; GCC then writes its switches.
_COMPILER = re.compile(rb"GNU (?:C\d|GIMPLE)[^\0]*|clang version")
#: An ELF file of 64 bits: where its header has the place of the table of sections, and sizes and numbers of that.
_ELF, _TABLE_AT, _COUNTS_AT = b"\x7fELF\x02\x01", 0x28, 0x3A
#: A section of that table: name, type, flags, address, place in the file, size.
_SECTION = struct.Struct("<IIQQQQ")
_COMPRESSED = 0x800


def optimized() -> bool | None:
    """Whether this process's interpreter was built with PGO; None where that is not known."""
    configured = str(sysconfig.get_config_var("CONFIG_ARGS"))
    switches = " ".join(str(sysconfig.get_config_var(name)) for name in _SWITCHES)
    if named(configured, switches):
        return True
    with contextlib.suppress(OSError, ValueError, struct.error):  # another system, or a form that is not read
        return by_profile(compilers(program()))
    return None


def named(configured: str, switches: str) -> bool:
    """Whether the arguments of configure or the compiler's switches ask for PGO."""
    return "--enable-optimizations" in configured or _BY_PROFILE.search(switches) is not None


def by_profile(found: list[str]) -> bool | None:
    """Whether a compiler says that it compiled by a profile; None without any, or with Clang, which says less."""
    if any(_BY_PROFILE.search(one) for one in found):
        return True
    return False if found and not any("clang" in one for one in found) else None


def program() -> Path:
    """The file of this process that has the interpreter: its library, else its program. Raises OSError."""
    maps = Path("/proc/self/maps").read_text()
    library = re.search(r"/\S*/libpython3\S*", maps)
    return Path(library[0]) if library else Path("/proc/self/exe").resolve()


def compilers(file: Path) -> list[str]:
    """The compilers that the debug information of an ELF file names, with the switches of GCC; empty without any.

    Raises OSError, ValueError and struct.error for a file that cannot be read.
    """
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        strings = _section(content, b".debug_str")
    return [found.decode(errors="replace") for found in sorted(set(_COMPILER.findall(strings)))]


def _section(content: mmap.mmap, name: bytes) -> bytes:
    """The bytes of a section of an ELF file; empty if it has none, or a compressed one."""
    if content[: len(_ELF)] != _ELF:
        return b""
    (table,) = struct.unpack_from("<Q", content, _TABLE_AT)
    size, count, names_at = struct.unpack_from("<HHH", content, _COUNTS_AT)
    sections = [_SECTION.unpack_from(content, table + size * number) for number in range(count)]
    names = sections[names_at][4]
    for name_at, _, flags, _, start, length in sections:
        found = content[names + name_at : names + name_at + len(name) + 1]
        if found == name + b"\0" and not flags & _COMPRESSED:
            return content[start : start + length]
    return b""
