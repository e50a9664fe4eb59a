"""The options of `write.format("popmq")` and `writeStream.format("popmq")`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from popmq_spark.options import CONNECTION, KAFKA, Connecting, Option, OptionError, duration, parse_values, whole, word

# A sink is not a reader: it has no group and no limits of a trigger, and it takes rows for several topics at once.
#: Options that Spark hands to every sink among its own.
_SPARKS = frozenset({"checkpointlocation", "queryname", "path", "outputmode"})
#: Option names of other sinks, and their names here.
_ELSEWHERE = KAFKA | {"subscribe": "topic", "bootstrap.servers": "endpoint"}
_BATCH_MAX = (1 << 63) - 1


def _delivery(text: str) -> bool:
    """Whether it is exactly once."""
    name = re.sub(r"[ _]", "-", text.strip().lower())
    if name not in ("at-least-once", "exactly-once"):
        raise ValueError("at-least-once or exactly-once")
    return name == "exactly-once"


WRITE_OPTIONS = (
    *CONNECTION,
    Option("topic", word, "", "the topic of rows whose column topic is null or missing"),
    Option(
        "delivery",
        _delivery,
        "at-least-once",
        "at-least-once; or exactly-once, so that a batch that Spark repeats is in the topic once",
    ),
    Option(
        "badRowTopic", word, "", "the topic for rows that cannot be sent, with the reason; unset: they fail the query"
    ),
    Option("txnAppId", word, "", "the name under which batches are committed; unset: the id of the streaming query"),
    Option(
        "txnVersion", whole(0, _BATCH_MAX), "", "with txnAppId: the number of this batch, for write in foreachBatch"
    ),
    Option("maxRowsPerRequest", whole(1, 4096), "1000", "rows of one request to the broker"),
    Option(
        "brokerUnavailableTimeout", duration("1s", "12h"), "120s", "how long a write waits for a broker that is down"
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions(Connecting):
    """The options of one sink, typed. `WRITE_OPTIONS` tells what each does."""

    delivery: bool
    max_rows_per_request: int
    broker_unavailable_timeout: float
    topic: str = ""
    bad_row_topic: str = ""
    txn_app_id: str = ""
    txn_version: int | None = None

    @classmethod
    def parse(cls, given: Mapping[str, str], *, streaming: bool) -> "WriteOptions":
        """Reads the options of a sink; names in any case. Raises OptionError."""
        texts = {name.lower(): value for name, value in given.items() if name.lower() not in _SPARKS}
        options = cls(**parse_values(WRITE_OPTIONS, texts, _ELSEWHERE))
        if streaming and options.txn_version is not None:
            raise OptionError("popmq: txnVersion is for write in foreachBatch; a streaming query numbers its batches")
        if not streaming and options.delivery and (not options.txn_app_id or options.txn_version is None):
            raise OptionError(
                "popmq: delivery = exactly-once of a batch write needs txnAppId and txnVersion, the name of the job "
                "and the number of the batch: they identify a repeat"
            )
        if not options.delivery and options.txn_version is not None:
            raise OptionError("popmq: txnVersion needs delivery = exactly-once")
        return options
