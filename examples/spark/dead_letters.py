"""Dead letters by SQL: which failed, where they came from, and why; and a picture of it.

    python examples/spark/dead_letters.py [ENDPOINT]

Reads the dead-letter topics of all groups and leases nothing: a look changes no message. Those that are worth another
try are delivered again by `client.dead_letters.redrive`.
"""

from pathlib import Path

import shop
from pyspark.sql import DataFrame, SparkSession

import popmq

GROUP = "shop-billing"
REASONS = ("no such account", "amount is negative", "the bank is closed")


def fail(client: popmq.Client, messages: int = 30) -> None:
    """Rejects the first orders, as a consumer with faults would; does nothing if its group is there."""
    if GROUP in {group.name for group in client.groups.list()}:
        return
    client.groups.create(GROUP)
    for number, delivery in enumerate(client.pop(shop.ORDERS, GROUP, messages)):
        client.reject(delivery, reason=REASONS[number % 7 % 3])


def run(spark: SparkSession, endpoint: str) -> DataFrame:
    """Topic, reason, number of dead letters and the turnover in them."""
    dead = spark.read.format("popmq").option("endpoint", endpoint).option("topicPattern", "%DLQ%.*")
    dead.option("includeDeadLetter", True).load().createOrReplaceTempView("dead_letters")
    return spark.sql(
        """
        SELECT dead_letter.topic, dead_letter.reason, count(*) AS messages,
               sum(CAST(get_json_object(CAST(body AS STRING), '$.amount') AS DOUBLE)) AS turnover
        FROM dead_letters GROUP BY dead_letter.topic, dead_letter.reason ORDER BY messages DESC, reason
        """
    )


def draw(rows: DataFrame, picture: Path) -> None:
    """A bar for each reason."""
    import matplotlib.pyplot as plt

    table = rows.toPandas()
    figure, axes = plt.subplots(figsize=(9, 3))
    axes.barh(table["reason"], table["messages"])
    axes.set_title("Dead letters by reason")
    figure.tight_layout()
    figure.savefig(picture)
    plt.close(figure)


if __name__ == "__main__":
    with popmq.Client(shop.endpoint()) as client:
        shop.fill(client)
        fail(client)
    here = Path("build/examples")
    here.mkdir(parents=True, exist_ok=True)
    table = run(shop.session(), shop.endpoint())
    table.show(truncate=False)
    draw(table, here / "dead_letters.png")
    print(f"the picture is {here / 'dead_letters.png'}")
