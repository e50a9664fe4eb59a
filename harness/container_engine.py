"""Docker for the tests of the image: the engine that runs here, or one that the tests start for themselves.

Where no registry is reached, the base images are made of Debian's packages: the same Python, at the same path.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: The release of Debian that has the Python of the Dockerfile, and what a build needs of it.
DEBIAN, PACKAGES = "trixie", "python3,python3-venv,python3-pip,make,ca-certificates"
#: Seconds in which a Docker engine has to answer after its start.
READY_S = 60.0
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Unavailable(Exception):
    """There is no engine, or no base image; the message says what is missing."""


class Engine:
    """The command `docker` with one engine."""

    def __init__(self, host: str = "") -> None:
        self.environment = {**os.environ, **({"DOCKER_HOST": host} if host else {}), "DOCKER_BUILDKIT": "0"}

    def run(self, *arguments: str, check: bool = True) -> str:
        """The standard output of a command, with what it said on standard error after it."""
        done = subprocess.run(
            ["docker", *arguments], env=self.environment, capture_output=True, text=True, timeout=1200, check=False
        )
        if check and done.returncode:
            raise RuntimeError(f"docker {arguments[0]} ended with {done.returncode}: {done.stderr}")
        return done.stdout + done.stderr

    def answers(self) -> bool:
        """Whether the engine is there."""
        return (
            subprocess.run(["docker", "info"], env=self.environment, capture_output=True, check=False).returncode == 0
        )

    def need(self, image: str, folder: Path) -> None:
        """Makes sure that a base image is there. Raises Unavailable."""
        if self._has(image) or (self.run("pull", image, check=False) and self._has(image)):
            return
        if shutil.which("debootstrap") is None or os.getuid() != 0:
            raise Unavailable(f"no registry has {image}, and there is no debootstrap to make it of Debian's packages")
        root = folder / "base"
        if not root.exists():
            command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", DEBIAN, str(root)]
            subprocess.run(command, check=True, stdout=sys.stderr, timeout=900)
            (python,) = (
                path.name for path in root.glob("usr/bin/python3.*") if re.fullmatch(r"python3\.\d+", path.name)
            )
            for name in ("python", "python3", python):
                (root / "usr/local/bin" / name).symlink_to(f"/usr/bin/{python}")
            if CERTIFICATES.exists():  # this machine's, with which its package index is reached
                shutil.copy(CERTIFICATES, root / "etc/ssl/certs/ca-certificates.crt")
                (root / "etc/pip.conf").write_text(f"[global]\ncert = {CERTIFICATES}\n")
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
            command = ["docker", "import", "-", image]
            subprocess.run(command, env=self.environment, stdin=packed.stdout, check=True, stdout=sys.stderr)

    def _has(self, image: str) -> bool:
        command = ["docker", "image", "inspect", image]
        return subprocess.run(command, env=self.environment, capture_output=True, check=False).returncode == 0


@contextmanager
def engine(folder: Path) -> Iterator[Engine]:
    """The running engine, or one whose data is in `folder` and that ends with the block. Raises Unavailable."""
    if shutil.which("docker") is None:
        raise Unavailable("there is no docker here")
    found = Engine()
    if found.answers():
        yield found
        return
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        raise Unavailable("no Docker engine runs here, and only root can start one")
    socket = f"unix://{folder}/docker.sock"
    flags = {"data-root": folder / "data", "exec-root": folder / "exec", "pidfile": folder / "pid", "host": socket}
    command = ["dockerd", *(f"--{name}={value}" for name, value in flags.items())]
    with (folder / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            found, deadline = Engine(socket), time.monotonic() + READY_S
            while not found.answers():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise Unavailable(f"dockerd does not start: {(folder / 'log').read_text()[-2000:]}")
                time.sleep(0.2)
            yield found
        finally:
            process.terminate()
            process.wait(60)
