"""Finds out whether the Python that Spark starts for its workers has the connector.

Spark starts PYSPARK_PYTHON, else the `python3` on PATH: without an activated environment that is another Python than
the driver's, and Spark's own error then names neither of them.
"""

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Prints the modules that are missing. Nothing is imported: a worker gets PySpark from Spark.
LOOK = "import importlib.util as u; print(*(m for m in ('popmq', 'popmq_spark', 'pyarrow') if not u.find_spec(m)))"
LOOK_SECONDS_MAX = 60.0  # 0.1 s on a quiet machine


class WorkerPythonError(RuntimeError):
    """The Python of Spark's workers cannot run the connector. The message says which it is, and what to do."""


def check_worker_python(spark: "SparkSession") -> None:
    """Raises WorkerPythonError. Of a Spark Connect server, which may be another machine, nothing is known."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        check_python(spark.sparkContext.pythonExec)


def check_python(python: str) -> None:
    """As above, of one executable."""
    try:
        asked = [python, "-c", LOOK]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=LOOK_SECONDS_MAX, check=True)
        missing = said.stdout.split()
    except (OSError, subprocess.SubprocessError) as error:
        raise WorkerPythonError(
            f"popmq: Spark starts {python!r} for its workers, which does not run: {error}"
        ) from error
    if missing:
        raise WorkerPythonError(
            f"popmq: Spark starts {python!r} for its workers, which has no {', no '.join(missing)}. Set PYSPARK_PYTHON "
            f"before the session begins, on this machine to {sys.executable}, or install the connector there: "
            f'{python} -m pip install "popmq[spark]"'
        )
