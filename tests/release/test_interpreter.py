"""A broker on an interpreter that is known to lack optimization says so; on any other it does not."""

import struct
import sys
from pathlib import Path

import pytest

from harness.broker_process import BrokerProcess
from popmq_server.process.interpreter import SLOW, by_profile, compilers, named, optimized

#: CONFIG_ARGS and PY_CORE_CFLAGS of interpreters that exist, shortened where they name folders.
PYENV = ("'--prefix=/root/.pyenv/versions/3.11.7' '--enable-shared' 'LDFLAGS=-Wl,-rpath,/x'", "-DNDEBUG -g -O3 -Wall")
DEBIAN_12 = (
    "'--enable-shared' '--prefix=/usr' '--with-computed-gotos' '--with-dtrace' '--with-system-ffi' "
    "'CC=x86_64-linux-gnu-gcc' 'CFLAGS=-g   -fstack-protector-strong -Wformat' 'LDFLAGS=  -g -fwrapv -O2   '",
    "-Wsign-compare -DNDEBUG -g -fwrapv -O2 -Wall -g   -fstack-protector-strong -std=c11 -fPIC -DPy_BUILD_CORE",
)
DEBIAN_TESTING = (
    "'--enable-shared' '--prefix=/usr' '--with-dtrace' '--enable-experimental-jit=yes-off' 'CC=x86_64-linux-gnu-gcc'",
    "-fno-strict-overflow -DNDEBUG -g -O2 -Wall",
)
CONDA_OF_2020 = ("'--enable-shared' '--enable-ipv6' '--prefix=/var/lib/conda/envs/37'", "-DNDEBUG -O3")
STANDALONE = (
    "'--build=x86_64-unknown-linux-gnu' '--prefix=/install' '--without-ensurepip' '--enable-shared' "
    "'--enable-optimizations' '--with-lto' 'CC=clang'",
    "-DNDEBUG -g -O3",
)
DOCKER_HUB = (
    "'--build=x86_64-linux-gnu' '--enable-loadable-sqlite-extensions' '--enable-optimizations' "
    "'--enable-option-checking=fatal' '--enable-shared' '--with-lto'",
    "-DNDEBUG -g -O3",
)
BY_HAND = ("'--prefix=/opt/python'", "-DNDEBUG -g -O3 -fprofile-use -fprofile-correction")
#: What compilers write into the debug information.
PLAIN = "GNU C11 12.2.0 -mtune=generic -march=x86-64 -g -O3 -std=c11 -fwrapv -fvisibility=hidden -fPIC"
PROFILED = "GNU C17 12.2.0 -mtune=generic -march=x86-64 -g -O3 -fprofile-use -fprofile-correction"
LINKED = "GNU GIMPLE 12.2.0 -mtune=generic -march=x86-64 -g -O3 -fPIC -fprofile-use -fprofile-correction -fltrans"
COMPRESSED = 0x800


@pytest.mark.parametrize("values", [STANDALONE, DOCKER_HUB, BY_HAND])
def test_values_that_name_the_optimization_are_enough(values: tuple[str, str]) -> None:
    assert named(*values)


@pytest.mark.parametrize("values", [PYENV, DEBIAN_12, DEBIAN_TESTING, CONDA_OF_2020])
def test_values_do_not_tell_a_plain_build_from_those_of_distributions(values: tuple[str, str]) -> None:
    """Three of these are optimized."""
    assert not named(*values)


@pytest.mark.parametrize(
    ("found", "answer"),
    [
        ([PLAIN], False),
        ([PLAIN, PROFILED], True),
        ([LINKED], True),
        ([PLAIN, "clang version"], None),
        (["clang version"], None),
        ([], None),
    ],
)
def test_only_switches_of_gcc_without_a_profile_show_a_plain_build(found: list[str], answer: bool | None) -> None:
    assert by_profile(found) is answer


def elf(*strings: str, name: str = ".debug_str", flags: int = 0) -> bytes:
    """A file of 64 bits with the sections NULL, one with strings, and the names of sections."""
    names, text = f"\0{name}\0.shstrtab\0".encode(), "\0".join(("", *strings, "")).encode()
    sections = [
        (0, 0, 0, 0, 0, 0),
        (1, 1, flags, 0, 64, len(text)),
        (len(name) + 2, 3, 0, 0, 64 + len(text), len(names)),
    ]
    header = bytearray(b"\x7fELF\x02\x01".ljust(64, b"\0"))
    struct.pack_into("<Q", header, 0x28, 64 + len(text) + len(names))
    struct.pack_into("<HHH", header, 0x3A, 64, len(sections), 2)
    return bytes(header) + text + names + b"".join(struct.pack("<IIQQQQ", *each).ljust(64, b"\0") for each in sections)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (elf("PyObject", PLAIN, "GNU AS 2.40", "_PyEval_EvalFrameDefault"), [PLAIN]),
        (elf("Debian clang version 14.0.6", PROFILED), [PROFILED, "clang version"]),
        (elf(PLAIN, flags=COMPRESSED), []),
        (elf(PLAIN, name=".debug_line_str"), []),
        (b"#!/bin/sh\n" + PLAIN.encode(), []),
    ],
)
def test_compilers_are_read_from_the_debug_information(content: bytes, found: list[str], tmp_path: Path) -> None:
    file = tmp_path / "libpython3.so"
    file.write_bytes(content)
    assert compilers(file) == found


def test_a_build_without_debug_information_in_a_form_that_is_read_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Path) -> list[str]:
        raise struct.error("unpack_from requires a buffer of at least 8 bytes")

    monkeypatch.setattr("popmq_server.process.interpreter.named", lambda *_: False)
    monkeypatch.setattr("popmq_server.process.interpreter.compilers", broken)
    assert optimized() is None


SERVE = """
import sys
from popmq_server import __main__ as serving
serving.optimized = lambda: {answer}
sys.exit(serving.main())
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.parametrize(("answer", "times"), [(False, 1), (True, 0), (None, 0)])
def test_a_broker_says_once_that_its_interpreter_is_not_optimized(
    answer: bool | None, times: int, tmp_path: Path
) -> None:
    program = [sys.executable, "-c", SERVE.format(answer=answer)]
    with BrokerProcess(tmp_path / "data", program=program) as process:
        assert process.stop() == 0
    lines = process.log.read_text().splitlines()
    assert [line for line in lines if "settings:" in line]
    assert sum(SLOW in line and " WARNING " in line for line in lines) == times
