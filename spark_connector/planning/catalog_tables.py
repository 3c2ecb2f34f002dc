"""The options of ``CREATE TABLE``, kept in the columns of the table.

Spark shows them to a Python data source once, when it makes the table (``V2SessionCatalog``), and
asks for columns. A query of the table gets these columns back with their metadata, and none of the
options (``PythonTable`` has no place for them). So a column's metadata holds them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pyspark.sql.types import StructType

KEY = "fencelog.options"
"""The metadata of a column in which the options are, as JSON."""

_OPTION = "option."
"""The prefix by which Spark tells options from its own properties of a new table."""

_ITEM = {
    "type": "struct",
    "fields": [
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
        {"name": "value", "type": "binary", "nullable": True, "metadata": {}},
    ],
}
_JSON_TYPES: Mapping[str, object] = {
    "int": "integer",
    "bigint": "long",
    "array<struct<name:string,value:binary>>": {
        "type": "array",
        "elementType": _ITEM,
        "containsNull": True,
    },
}
"""The JSON of the types that have another name in it."""


def options_of_new_table(options: Mapping[str, str], source: str) -> dict[str, str] | None:
    """Return the options of the table of this source that Spark is making; None if it is making
    none."""
    if options.get("provider") != source:
        return None
    return {
        name.removeprefix(_OPTION): value
        for name, value in options.items()
        if name.startswith(_OPTION)
    }


def columns_with_options(
    columns: Sequence[tuple[str, str]], options: Mapping[str, str] | None
) -> StructType:
    """Return columns, each a name and its type as in SQL, that keep the options of their table
    (None: they are no table's)."""
    metadata = {} if options is None else {KEY: json.dumps(dict(sorted(options.items())))}
    fields = [
        {
            "name": name,
            "type": _JSON_TYPES.get(kind, kind),
            "nullable": True,
            "metadata": metadata if name == "value" else {},
        }
        for name, kind in columns
    ]
    return StructType.fromJson({"type": "struct", "fields": fields})


def options_of_table(schema: StructType) -> dict[str, str]:
    """Return the options that the columns keep; none where they are no table's."""
    kept = (field.metadata[KEY] for field in schema.fields if KEY in (field.metadata or {}))
    return dict(json.loads(next(kept, "{}")))


def options_of_query(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a query: those that it names, beside those of its table unless it names
    a server itself, as one does that has only taken the columns from a table."""
    given = {name.lower(): value for name, value in options.items()}
    return given if "server" in given else options_of_table(schema) | given
