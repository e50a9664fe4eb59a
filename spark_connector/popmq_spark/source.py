"""The data source that Spark knows as "popmq".

Imported in every Python process that Spark starts, also where nobody reads from PopMQ: nothing here loads gRPC or
Arrow until a query needs it.
"""

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from popmq_spark.options import Options
from popmq_spark.schema import check_projection, full_schema

if TYPE_CHECKING:
    from popmq_spark.stream import PopMQStreamReader


class PopMQDataSource(DataSource):
    """`spark.readStream.format("popmq")`. Options: `popmq_spark.options.OPTIONS`; columns: `popmq_spark.schema`.

    What is wrong with the options is raised by `load()`, what is wrong with a user's schema when the query starts.
    """

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # Read here and not in schema(): a user's own schema means that schema() is never asked.
        self._parsed = Options.parse(options)

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

    def reader(self, schema: StructType) -> DataSourceReader:
        raise NotImplementedError(
            "popmq: spark.read is not served yet; read the topic once with "
            'spark.readStream.format("popmq") … .trigger(availableNow=True)'
        )
