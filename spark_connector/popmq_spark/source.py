"""The data source that Spark knows as "popmq".

Imported in every Python process that Spark starts, also where nobody reads from PopMQ: nothing here loads gRPC or
Arrow until a query needs it.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from popmq_spark.options import OptionError, Options
from popmq_spark.schema import check_projection, full_schema
from popmq_spark.write_options import WriteOptions

if TYPE_CHECKING:
    from popmq_spark.stream import PopMQStreamReader
    from popmq_spark.write import BatchWriter, StreamWriter


class PopMQDataSource(DataSource):
    """`spark.readStream.format("popmq")`, and `write` and `writeStream`.

    Options: `popmq_spark.options.OPTIONS`, `popmq_spark.write_options.WRITE_OPTIONS`; columns: `popmq_spark.schema`,
    `popmq_spark.rows`. What is wrong with the options of a read is raised by `load()`, what is wrong with a user's
    schema, or with a sink, when the query starts.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Spark does not tell whether this is a read or a write. Only a read names a group: it is parsed here and not in
        # schema(), because a user's own schema means that schema() is never asked.
        self._read = Options.parse(options) if "group" in {name.lower() for name in options} else None

    @property
    def _parsed(self) -> Options:
        """The options of a read. Raises OptionError."""
        return self._read or Options.parse(self.options)

    @classmethod
    def name(cls) -> str:
        return "popmq"

    def schema(self) -> StructType:
        return full_schema(self._parsed.include_properties)

    def streamReader(self, schema: StructType) -> "PopMQStreamReader":
        from popmq_spark.columns import arrow_schema
        from popmq_spark.stream import PopMQStreamReader

        check_projection(schema)
        return PopMQStreamReader(self._parsed, arrow_schema(schema))

    def streamWriter(self, schema: StructType, overwrite: bool) -> "StreamWriter":
        from popmq_spark.rows import check_columns
        from popmq_spark.write import StreamWriter

        options = WriteOptions.parse(self.options, streaming=True)
        check_columns(schema, bool(options.topic))
        return StreamWriter(options)

    def writer(self, schema: StructType, overwrite: bool) -> "BatchWriter":
        from popmq_spark.rows import check_columns
        from popmq_spark.write import BatchWriter

        if overwrite:
            raise OptionError("popmq: a topic is not overwritten; write with mode append, or purge the topic before")
        options = WriteOptions.parse(self.options, streaming=False)
        check_columns(schema, bool(options.topic))
        return BatchWriter(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError(
            "popmq: spark.read is not served yet; read the topic once with "
            'spark.readStream.format("popmq") … .trigger(availableNow=True)'
        )
