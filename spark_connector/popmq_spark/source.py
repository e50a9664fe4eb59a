"""The data source that Spark knows as "popmq".

Imported in every Python process that Spark starts, also if no query uses PopMQ: this module loads neither gRPC nor
Arrow until a query needs it.
"""

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader
from pyspark.sql.types import StructField, StructType

from popmq_spark.offsets.offsets_options import OffsetsOptions
from popmq_spark.options import OptionError, Options, Reading
from popmq_spark.pyspark_version import check_pyspark
from popmq_spark.schema import check_projection, full_schema
from popmq_spark.writing.write_options import WriteOptions

if TYPE_CHECKING:
    from popmq_spark.writing.write import BatchWriter, StreamWriter


class PopMQDataSource(DataSource):
    """`spark.read.format("popmq")`, and `readStream`, `write` and `writeStream`.

    Options: `popmq_spark.options.OPTIONS`, `popmq_spark.offsets.offsets_options`,
    `popmq_spark.writing.write_options.WRITE_OPTIONS`; columns: `popmq_spark.schema`, `popmq_spark.rows`. `load()`
    refuses options that no read may have, and a PySpark that is too old. The start of the query refuses those that only
    a batch read or only a stream may not have, a user's wrong schema, and what is wrong with a sink. With a user's
    schema, `load()` looks at the options only if a group or a mode is among them.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        check_pyspark()
        self._of_table = of_table(options)
        given = {name.lower(): value for name, value in options.items()} if self._of_table is None else self._of_table
        super().__init__(given)
        # Spark does not tell whether this is a read or a write, or a stream or a batch. Only a read names a group or a
        # mode: it is parsed here and not in schema(), because a user's own schema means that schema() is never asked.
        self._mode = given.get("mode", "").strip().lower()
        self._leases = self._mode == "lease" or (not self._mode and "group" in given)
        if self._mode or self._leases:
            self._reading()

    def _reading(self) -> Reading:
        """The options of a read. Raises OptionError for whatever is wrong with them."""
        return Options.parse(self.options) if self._leases else OffsetsOptions.either(self.options)

    @classmethod
    def name(cls) -> str:
        return "popmq"

    def schema(self) -> StructType:
        given = self._reading()
        schema = full_schema(given.include_properties, given.include_dead_letter, given.include_keys)
        return schema if self._of_table is None else with_options(schema, self._of_table)

    def _of(self, schema: StructType) -> "PopMQDataSource":
        """This source, or if the schema is of a table, one with its options; those of the query come before them."""
        kept = options_in(schema)
        return PopMQDataSource(kept | dict(self.options)) if kept else self

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        from popmq_spark.columns import arrow_schema
        from popmq_spark.lease.stream import PopMQStreamReader
        from popmq_spark.offsets.offsets_stream import OffsetsStreamReader

        check_projection(schema)
        source = self._of(schema)
        if source._mode and not source._leases:
            return OffsetsStreamReader(OffsetsOptions.stream(source.options), arrow_schema(schema))
        return PopMQStreamReader(Options.parse(source.options), arrow_schema(schema))

    def reader(self, schema: StructType) -> DataSourceReader:
        from popmq_spark.columns import arrow_schema
        from popmq_spark.lease.draining import DrainReader
        from popmq_spark.offsets.range_reader import reader_of

        check_projection(schema)
        source = self._of(schema)
        if "drainplan" in source.options:
            return DrainReader(Options.parse(source.options), arrow_schema(schema))
        if source._leases:
            raise OptionError(
                "popmq: spark.read leases nothing: leave out mode and group, or call popmq_spark.drain, which acks "
                "what it has read"
            )
        return reader_of(OffsetsOptions.batch(source.options), arrow_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        from popmq_spark.rows import check_columns
        from popmq_spark.writing.write import StreamWriter, check_engine

        options = WriteOptions.parse(self.options, streaming=True)
        check_columns(schema, bool(options.topic))
        check_engine(options)
        return StreamWriter(options)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from popmq_spark.rows import check_columns
        from popmq_spark.writing.write import BatchWriter, check_engine

        if overwrite:
            raise OptionError("popmq: a topic is not overwritten; write with mode append, or purge the topic before")
        options = WriteOptions.parse(self.options, streaming=False)
        check_columns(schema, bool(options.topic))
        check_engine(options)
        return BatchWriter(options)


# ── Tables of Spark's catalog: CREATE TABLE … USING popmq OPTIONS (…) ─────────────────────────────────────────────────
#
# Spark passes the options once, when the table is created, among properties of its own, and to no later query: a source
# in Python is then made without options. But it is given the schema of the table as the catalog has it, with the
# metadata of its columns. So the schema that a new table gets carries the options in the metadata of its first column.

_KEPT = "popmq.options"
#: Not kept where every reader of the catalog sees them: drivers and executors have them in their environment.
_SECRETS = frozenset({"accesskey", "secret"})


def of_table(options: Mapping[str, str]) -> dict[str, str] | None:
    """The user's options of a table that is created; None if these are of a query.

    Spark passes each by its name and as `option.NAME`, the properties of the table, as its provider and owner, by name
    only.
    """
    given = {name.lower(): value for name, value in options.items()}
    if "provider" not in given:
        return None
    return {name.removeprefix("option."): value for name, value in given.items() if name.startswith("option.")}


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The schema that the catalog keeps for a table."""
    kept = {name: value for name, value in options.items() if name not in _SECRETS}
    first, *others = schema.fields
    return StructType([StructField(first.name, first.dataType, first.nullable, {_KEPT: kept}), *others])


def options_in(schema: StructType) -> dict[str, str]:
    """The options of the table that a schema is of; none if it is of no table."""
    return {name: value for field in schema.fields for name, value in (field.metadata or {}).get(_KEPT, {}).items()}
