"""A Spark driver in a process of its own: stores each batch as a file and, at batch 1, kills all its processes.

    python driver_to_kill.py ENDPOINT TOPIC GROUP FOLDER

The kill comes after the rows are stored and before Spark writes commits/1.
"""

import json
import os
import signal
import sys
from pathlib import Path

from popmq_spark.java import java_environment


def main(endpoint: str, topic: str, group: str, folder: Path) -> None:
    os.environ.update(java_environment(), SPARK_LOCAL_IP="127.0.0.1", PYSPARK_PYTHON=sys.executable)
    from pyspark.sql import DataFrame, SparkSession

    def store(rows: DataFrame, batch: int) -> None:
        ids = [row.message_id for row in rows.select("message_id").collect()]
        (folder / f"batch-{batch}.json").write_text(json.dumps(ids))
        if batch == 1:
            os.killpg(0, signal.SIGKILL)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.local.dir", str(folder / "spark")).getOrCreate()
    source = spark.readStream.format("popmq").option("endpoint", endpoint).option("topic", topic)
    rows = source.option("group", group).option("maxRowsPerTrigger", 20).option("minPartitions", 2).load()
    writer = rows.writeStream.foreachBatch(store).option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
