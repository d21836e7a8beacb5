"""The keys of pipeline.yml and the settings of tables, with what each means. docs/reference has the same texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Key:
    """What a key means, in Markdown, with links relative to docs/reference. `default` applies when the key is left out."""

    about: str
    default: str = ""


PIPELINE_KEYS: Mapping[str, Key] = {
    "name": Key("the name of the folder", "required"),
    "about": Key("what the pipeline does, in one sentence", "required"),
    "streams": Key("at least one stream: see below", "required"),
    "trigger": Key("how long landing waits between two batches", "`0`"),
    "target_lag": Key("the `target_lag` of all tables: [How fresh a table is](tables.md#how-fresh-a-table-is)", "none"),
    "namespace": Key('the namespace of all layer tables, such as `payments_db` or `"{layer}.shop"`', "the layer's name"),
    "sources": Key("`http` and `postgres`: see below", "none"),
    "serving": Key("tables in Postgres, and pages: see below", "none"),
    "people": Key("whose rows these are: [Erase a person](../how-to/erasure.md#what-a-pipeline-declares)", "none"),
    "queries": Key("titles and queries in DuckDB's SQL that `headrace demo` runs at the end", "none"),
}

STREAM_KEYS: Mapping[str, Key] = {
    "topic": Key("the Kafka topic", "required"),
    "table": Key("the raw table, with its namespace", "required"),
    "format": Key("`json`, `avro` or `debezium`", "required"),
    "schema": Key("columns as DDL in a `.sql` file, or an `.avsc`; `avro` and `debezium` need an `.avsc`", "required"),
    "partitions": Key("partitions of a topic that Headrace creates, up to 10,000", "`1`"),
    "retention": Key("how long Kafka keeps messages of a topic that Headrace creates: `7 days`, or `forever`", "the broker's"),
    "cleanup_policy": Key(
        "of a topic that Headrace creates: `delete`, `compact`, which keeps each key's newest message, or `compact,delete`",
        "the broker's",
    ),
    "delete_retention": Key("how long a compacted topic keeps the deletion of a key: `1 day`", "the broker's"),
    "framing": Key(
        "of `format: avro`: `auto`, `confluent` or `none`: [Framed messages](avro.md#framed-messages)",
        "`auto`",
    ),
    "partition_by": Key(
        "Iceberg's transforms: a column, `years`, `months`, `days` or `hours(column)`, `bucket(16, column)`, "
        "`truncate(4, column)`",
        "none",
    ),
    "event_time": Key(
        "`{column: event_time, from: timestamp, unit: ms}` adds a timestamp column computed from a column of whole numbers",
        "none",
    ),
    "epoch_unit": Key("the unit of numbers in timestamp columns of JSON: `s`, `ms` or `us`", "`ms`"),
    "max_record_bytes": Key("larger messages go to the quarantine", "`4194304`"),
    "output": Key("where data files go", "in the warehouse"),
    "commit_log": Key("where the commit log goes", "in the warehouse"),
    "snapshots_for": Key(
        "how long the raw table's snapshots stay, such as `30 days`: "
        "[Read tables as they were](../how-to/time-travel.md#how-far-back)",
        "`maintain.keep_days`",
    ),
    "generator": Key(
        "a file, or `{file: …, every: 500ms, through: /log}`. `through` sends events to a receiver of the pipeline "
        "instead of the topic",
        "none",
    ),
}

POSTGRES_KEYS: Mapping[str, Key] = {
    "database": Key("its name", "required"),
    "connectors": Key("a folder of `*.template.json` files", "required"),
    "url": Key("your own server. A password in it is an error", "Headrace's"),
    "migrations": Key("a folder of `V1_1__name.sql` files", "none"),
    "format": Key("`avro` or `json`", "`avro`"),
    "stage": Key("the file of [stage tables](tables.md#stage-tables)", "none"),
    "seeder": Key("`{file: sources/seeder.py, port: 8000}`", "none"),
    "by_hand": Key("the change that `headrace demo` makes in psql, and the query that then shows it", "none"),
}

TABLE_KEYS: Mapping[str, Key] = {
    "about": Key("what the table is, in a sentence"),
    "kind": Key("a kind of the table above. It follows from the other settings, except `full`, which you write"),
    "stored_as_scd_type": Key("`1` (default), or `2`, which keeps every version of a key: kind history"),
    "keys": Key("the columns that identify a row"),
    "sequence_by": Key("the column, or list of columns compared in order, that says which of two rows of a key is newer"),
    "apply_as_deletes": Key("a condition: such a row deletes its key (upsert), or ends its version (history)"),
    "apply_as_truncates": Key(
        "a condition: such a row removes all rows with a smaller `sequence_by`: [Changes of a database](#changes-of-a-database)"
    ),
    "unchanged": Key(
        "the column, an `array<string>`, that names the columns whose value the row omits: "
        "[Changes of a database](#changes-of-a-database)"
    ),
    "valid_from": Key(
        "of a history: the column that `valid_from` and `valid_to` are taken from. Default: `sequence_by`. "
        "Required where that is a list"
    ),
    "except_column_list": Key("columns that the query needs and the table does not store"),
    "track_history_except_column_list": Key("of a history: columns whose change alone starts no new version"),
    "constant": Key("columns that never change for a key: builds look for old rows only in files whose range can hold them"),
    "partition_by": Key("Iceberg's partitioning: `days(created_at)`, `bucket(16, id)`, `country`"),
    "rebuild_on": Key(
        "`{namespace.lookup: [column]}`: declares join columns that Headrace can't read from the query: [Joins](#joins)"
    ),
    "frozen": Key("`[namespace.lookup]`: lookups that are joined as of the build, on purpose: [Joins](#joins)"),
    "window": Key(
        "`{partition_by: [customer_id], order_by: created_at, range: 1 hour}`: the window that the query's functions use"
    ),
    "watermark": Key(
        "`{column: event_time, delay: 10 minutes}`: rows of the driver further behind the newest time count as late. "
        "Builds process them all the same; `headrace status` shows how many there were"
    ),
    "target_lag": Key(
        "how old a change may be before `headrace run` builds it, such as `1 minute`: "
        "[How fresh a table is](#how-fresh-a-table-is)"
    ),
    "snapshots_for": Key(
        "how long snapshots stay, such as `30 days`, and so how far back `--at` reads. Default: `maintain.keep_days`. "
        "[Read tables as they were](../how-to/time-travel.md#how-far-back)"
    ),
    "match": Key("of entities: the values by which records belong together: [Entities](#entities)"),
    "oldest_by": Key("of entities: the column that says which record is the oldest. Default: `sequence_by`"),
    "fuzzy": Key("of entities: joins records that only look alike: [Records that look alike](#records-that-look-alike)"),
    "largest_entity": Key(
        "of entities: builds and `headrace status` warn about entities with more records (100). It changes no row"
    ),
    "expect": Key(
        "sentences and conditions; `on_failure: warn` (default), `drop`, `quarantine`, or `fail`, which publishes nothing. "
        "A condition that is null is not met: [Check data quality](../how-to/quality.md)"
    ),
}
