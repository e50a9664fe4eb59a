"""Which releases of PySpark the connector runs on."""

import re

import pyspark

#: Earlier releases have no limits of a micro-batch for sources in Python.
PYSPARK_MIN = 4, 2


class PySparkVersionError(RuntimeError):
    """The installed PySpark is too old. The message says which it is, and which one is needed."""


def check_pyspark() -> None:
    """Raises PySparkVersionError. Asked before a module is imported that an older PySpark does not have."""
    found = tuple(int(number) for number in re.findall(r"\d+", pyspark.__version__)[:2])
    if found < PYSPARK_MIN:
        raise PySparkVersionError(
            f"popmq: the connector needs PySpark {'.'.join(map(str, PYSPARK_MIN))} or newer, this is "
            f'{pyspark.__version__}: pip install "pyspark>=4.2" on the driver and the executors'
        )
