"""What a pipeline is: the frozen values that `load_pipeline` returns and every stage works from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from headrace.spec.model.layers import LayerTable

CaptureFormat = Literal["avro", "json"]
EpochUnit = Literal["s", "ms", "us"]
Format = Literal["json", "avro", "debezium"]
Framing = Literal["auto", "confluent", "none"]
Method = Literal["GET", "POST"]
SignatureScheme = Literal["stripe", "shopify", "hubspot-v3", "hubspot-v2", "hubspot-v1", "standard-webhooks"]
TransformName = Literal["identity", "years", "months", "days", "hours", "bucket", "truncate"]


@dataclass(frozen=True)
class TableName:
    """A table and its namespace, which is one word, or two where one namespace is in another: `raw`, `stage.storefront`."""

    namespace: str
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The words of the name, each of which is an identifier of its own in SQL."""
        return (*self.namespace.split("."), self.name)

    @property
    def flat_namespace(self) -> str:
        """The namespace where one word is needed: `stage__storefront`."""
        return self.namespace.replace(".", "__")

    @property
    def flat(self) -> str:
        """The name where one word is needed: `stage__storefront__orders`."""
        return "__".join(self.parts)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @classmethod
    def parse(cls, written: str) -> TableName:
        """Return the table of a name that was checked before, such as one that the catalog has."""
        namespace, _, name = written.rpartition(".")
        return cls(namespace, name)


@dataclass(frozen=True)
class Transform:
    """One part of a table's partitioning, such as `hours(event_time)` or `bucket(16, customer_id)`."""

    name: TransformName
    column: str
    argument: int | None = None

    @property
    def field_name(self) -> str:
        """What Iceberg's Java library calls the partition field: `event_time_hour`, `customer_id_bucket`."""
        endings = {"identity": "", "bucket": "_bucket", "truncate": "_trunc"}
        return self.column + endings.get(self.name, f"_{self.name[:-1]}")

    def __str__(self) -> str:
        if self.name == "identity":
            return self.column
        return f"{self.name}({self.column if self.argument is None else f'{self.argument}, {self.column}'})"


@dataclass(frozen=True)
class EventTime:
    """A timestamp column made from an epoch number in another column."""

    column: str
    source: str
    unit: EpochUnit


@dataclass(frozen=True)
class Stream:
    """One topic and the raw table that it lands in.

    `output` and `commit_log` are where data files and the write-ahead commit log go; None means the place that Headrace
    chooses in the warehouse. `avro_schema` is the text of the .avsc where the format is Avro or Debezium; Debezium's messages
    have schemas of their own, and `columns` are what the table has at least. `framing` says whether Avro messages start with
    the id of their schema in a registry. `every_seconds` is how often its generator sends an
    event, unless a command says otherwise; `through` is the path of the receiver that it sends them to, and None means that
    it sends them to the topic itself.
    """

    name: str
    topic: str
    partitions: int
    format: Format
    columns: tuple[Column, ...]
    table: TableName
    partition_by: tuple[Transform, ...] = ()
    event_time: EventTime | None = None
    epoch_unit: EpochUnit = "ms"
    max_record_bytes: int = 4 * 1024 * 1024
    avro_schema: str | None = None
    framing: Framing = "auto"
    output: str | None = None
    commit_log: str | None = None
    generator: Path | None = None
    every_seconds: float = 0.1
    through: str | None = None

    @property
    def may_need_registry(self) -> bool:
        """Whether messages may name a schema of the registry."""
        return self.format == "debezium" or (self.format == "avro" and self.framing != "none")


@dataclass(frozen=True)
class OwnQuery:
    """A question to the pipeline's tables and the SQL that answers it, as DuckDB has it."""

    about: str
    sql: str


@dataclass(frozen=True)
class Receiver:
    """A function of a pipeline's HTTP source: requests to `path` become events of `stream`."""

    function: str
    path: str
    method: Method
    stream: str


@dataclass(frozen=True)
class Webhook:
    """A function of a pipeline's HTTP source that takes signed webhooks: each becomes events of `streams`, or of `other`.

    `secret` is the name of the environment variable that has the secret. Of `signatures` the first holds, and the others only
    where the environment names them. `batches` says whether a body may be a list of payloads.
    """

    function: str
    path: str
    signatures: tuple[SignatureScheme, ...]
    secret: str
    streams: tuple[str, ...]
    other: str
    batches: bool = False

    @property
    def all_streams(self) -> tuple[str, ...]:
        return (*self.streams, self.other)


@dataclass(frozen=True)
class HttpSource:
    """A server that takes events over HTTP: the Python file with its functions, and the port that it prefers."""

    file: Path
    port: int
    receivers: tuple[Receiver, ...]
    webhooks: tuple[Webhook, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        return (*(each.function for each in self.receivers), *(each.function for each in self.webhooks))


@dataclass(frozen=True)
class Seeder:
    """A program of a pipeline that fills its source database: its Python file, and the port that it prefers."""

    file: Path
    port: int


@dataclass(frozen=True)
class ByHand:
    """A statement to type into psql, and the query of the lake, in DuckDB's SQL, whose answer it changes."""

    change: str
    see: str


@dataclass(frozen=True)
class Capture:
    """A Postgres whose changes Debezium brings to Kafka.

    `database` is one of Headrace's Postgres, and `url` another server's, which is used instead. `migrations` is a folder of SQL
    files that make its tables, `connectors` one of templates of connectors. With `format` avro the messages' schemas are in a
    registry. `stage` is the file that stage tables are made from. `by_hand` is what a demo changes.
    """

    database: str
    connectors: Path
    url: str | None = field(default=None, repr=False)
    migrations: Path | None = None
    format: CaptureFormat = "avro"
    seeder: Seeder | None = None
    stage: Path | None = None
    by_hand: ByHand | None = None


@dataclass(frozen=True)
class PostgresTable:
    """A layer table as it is published to Postgres.

    `ddl` is the text that makes the table called `name` and what belongs to it; its `primary_key` has the keys of `source`.
    """

    name: str
    source: TableName
    ddl: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class Serving:
    """What people and programs get to see: tables in Postgres, and a Python file with pages of the pipeline's own."""

    postgres: tuple[PostgresTable, ...] = ()
    pages: Path | None = None


@dataclass(frozen=True)
class PersonColumns:
    """Expressions of Spark SQL over a raw table's columns that tell whose a row is.

    `ids` are by what gave them, such as `shopify`; an expression may give several in an array. Of columns in `text` every value
    that names a person makes the row theirs.
    """

    emails: tuple[str, ...] = ()
    phones: tuple[str, ...] = ()
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErasureRequests:
    """Rows of a stream that ask for a person to be erased, those for which `where` holds; `id` tells one from another."""

    stream: str
    where: str
    id: str
    whose: PersonColumns


@dataclass(frozen=True)
class People:
    """Whose the rows of a pipeline are, by stream; and the table that says which records are one person's, if there is one."""

    streams: Mapping[str, PersonColumns]
    entities: TableName | None = None
    requests: tuple[ErasureRequests, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A pipeline's streams, the tables that it builds from them, each after those that it reads, and what to ask of them."""

    name: str
    about: str
    folder: Path
    streams: tuple[Stream, ...]
    trigger_seconds: float = 0.0
    tables: tuple[LayerTable, ...] = ()
    queries: tuple[OwnQuery, ...] = ()
    http: HttpSource | None = None
    serving: Serving = Serving()
    people: People | None = None
    capture: Capture | None = None

    def stream(self, name: str) -> Stream:
        """Return the stream of a name that the pipeline's own files say."""
        return next(each for each in self.streams if each.name == name)
