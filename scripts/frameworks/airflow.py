"""Airflow in an environment of its own: our tests of its provider, the last of which starts all of Airflow.

    python -m scripts.frameworks.airflow        exit code 1 if a test fails

The environment is build/frameworks/airflow. Airflow's versions of libraries are not those of `.venv`.
"""

import os
import subprocess
import sys

from scripts.interpreters import ROOT, versions

PREFIX = ROOT / "build" / "frameworks" / "airflow"
PYTHON = PREFIX / "bin" / "python"
#: Airflow 3.3 is for these.
MINORS = ("3.12", "3.11", "3.13")
TOOLS = ("hypothesis", "pytest", "pytest-asyncio", "pytest-timeout")


def main() -> int:
    found = versions()
    python = next((found[minor] for minor in MINORS if minor in found), None)
    if python is None:
        print(f"frameworks: Airflow was left out: it needs Python {', '.join(MINORS)}, on PATH or in pyenv")
        return 0
    pip = [str(PYTHON), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    if not PYTHON.exists():
        print(f"frameworks: making {PREFIX.relative_to(ROOT)} with {python}", flush=True)
        subprocess.run([python, "-m", "venv", PREFIX], check=True)
        subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, "--editable", ".[server,airflow]", *TOOLS], cwd=ROOT, check=True)
    # Its libraries warn, and it writes a database into its home as soon as it is imported.
    tests = [str(PYTHON), "-m", "pytest", "-q", "-o", "filterwarnings=default", "tests/integrations/airflow"]
    environment = os.environ | {"AIRFLOW_HOME": str(PREFIX / "home")}
    return subprocess.run(tests, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
