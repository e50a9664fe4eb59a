"""The options of a table of Spark's catalog: CREATE TABLE … USING popmq OPTIONS (…).

Spark passes them once, when the table is created, among properties of its own, and to no later query: a source in
Python is then made without options. But it is given the schema of the table as the catalog has it, with the metadata of
its columns. So the schema that a new table gets carries the options in the metadata of its first column.
"""

from collections.abc import Mapping

from pyspark.sql.types import StructField, StructType

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
