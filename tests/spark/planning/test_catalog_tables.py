"""Options of ``CREATE TABLE`` that its columns keep."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from fencelog.ledgers.errors import ErrorCode, FencelogError
from fencelog.spark_connector.planning.catalog_tables import (
    columns_with_options,
    options_of_new_table,
    options_of_query,
    options_of_table,
)
from fencelog.spark_connector.source import COLUMNS, FencelogDataSource

GIVEN = {"server": "http://127.0.0.1:1", "topic": "t", "includeHeaders": "false"}
NEW_TABLE = {
    "provider": "fencelog",
    "owner": "somebody",
    **GIVEN,
    **{f"option.{name}": value for name, value in GIVEN.items()},
}
"""What Spark passes when it makes a table."""


def test_a_table_being_made_is_told_from_a_query() -> None:
    assert options_of_new_table(NEW_TABLE, "fencelog") == GIVEN
    assert options_of_new_table(GIVEN, "fencelog") is None


def test_columns_keep_options_through_sparks_json() -> None:
    schema = columns_with_options(list(COLUMNS.items()), GIVEN)
    again = StructType.fromJson(schema.jsonValue())
    assert options_of_table(again) == GIVEN
    assert {f.name: f.dataType.simpleString() for f in again.fields} == dict(COLUMNS)
    assert options_of_table(columns_with_options(list(COLUMNS.items()), None)) == {}


def test_a_query_adds_to_the_options_of_its_table() -> None:
    schema = columns_with_options(list(COLUMNS.items()), GIVEN)
    found = options_of_query({"startingOffsets": "latest"}, schema)
    assert found == GIVEN | {"startingoffsets": "latest"}
    other = {"server": "http://127.0.0.1:2", "topics": "a,b"}
    assert options_of_query(other, schema) == other


def test_what_is_wrong_is_named_when_the_table_is_made() -> None:
    source = FencelogDataSource(NEW_TABLE | {"option.topick": "t"})
    with pytest.raises(FencelogError, match="unknown option 'topick'; did you mean topic"):
        source.schema()


def test_a_table_is_not_written_to() -> None:
    schema = FencelogDataSource(NEW_TABLE).schema()
    with pytest.raises(FencelogError, match="a table of the catalog is for reading") as raised:
        FencelogDataSource({}).writer(schema, overwrite=False)
    assert raised.value.code is ErrorCode.BAD_REQUEST
    source = FencelogDataSource({"server": "http://127.0.0.1:1", "topic": "t"})
    written = source._write_options(StructType([schema["value"]]), overwrite=False)
    assert written.topic == "default/t"  # columns of a table may be written elsewhere
