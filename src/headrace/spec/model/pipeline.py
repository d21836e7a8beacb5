"""Pipelines: the frozen values that `load_pipeline` returns and every stage reads."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import isinf
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from headrace.spec.model.types import Column

if TYPE_CHECKING:
    from headrace.spec.model.layers import LayerTable

CaptureFormat = Literal["avro", "json"]
CleanupPolicy = Literal["delete", "compact", "compact,delete"]
EpochUnit = Literal["s", "ms", "us"]
Format = Literal["json", "avro", "debezium"]
Framing = Literal["auto", "confluent", "none"]
Method = Literal["GET", "POST"]
SignatureScheme = Literal["stripe", "shopify", "hubspot-v3", "hubspot-v2", "hubspot-v1", "standard-webhooks"]
TransformName = Literal["identity", "years", "months", "days", "hours", "bucket", "truncate"]


@dataclass(frozen=True)
class TableName:
    """A table and its namespace, which has one or two parts: `raw`, `stage.storefront`."""

    namespace: str
    name: str

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts of the name, each an identifier in SQL."""
        return (*self.namespace.split("."), self.name)

    @property
    def flat_namespace(self) -> str:
        """The namespace as one identifier: `stage__storefront`."""
        return self.namespace.replace(".", "__")

    @property
    def flat(self) -> str:
        """The name as one identifier: `stage__storefront__orders`."""
        return "__".join(self.parts)

    def __str__(self) -> str:
        return f"{self.namespace}.{self.name}"

    @classmethod
    def parse(cls, written: str) -> TableName:
        """Return the table of a valid name, such as one from the catalog."""
        namespace, _, name = written.rpartition(".")
        return cls(namespace, name)


@dataclass(frozen=True)
class Transform:
    """A partition transform, such as `hours(event_time)` or `bucket(16, customer_id)`."""

    name: TransformName
    column: str
    argument: int | None = None

    @property
    def field_name(self) -> str:
        """The name that Iceberg's Java library gives the partition field: `event_time_hour`, `customer_id_bucket`."""
        endings = {"identity": "", "bucket": "_bucket", "truncate": "_trunc"}
        return self.column + endings.get(self.name, f"_{self.name[:-1]}")

    def __str__(self) -> str:
        if self.name == "identity":
            return self.column
        return f"{self.name}({self.column if self.argument is None else f'{self.argument}, {self.column}'})"


@dataclass(frozen=True)
class EventTime:
    """A timestamp column computed from an epoch number in another column."""

    column: str
    source: str
    unit: EpochUnit


@dataclass(frozen=True)
class TopicSettings:
    """What Kafka keeps of a topic that Headrace creates. None is the broker's default; an infinite retention keeps all."""

    retention_seconds: float | None = None
    cleanup_policy: CleanupPolicy | None = None
    delete_retention_seconds: float | None = None

    @property
    def config(self) -> dict[str, str]:
        """The settings by Kafka's names."""
        values = {
            "retention.ms": _milliseconds(self.retention_seconds),
            "cleanup.policy": self.cleanup_policy,
            "delete.retention.ms": _milliseconds(self.delete_retention_seconds),
        }
        return {name: value for name, value in values.items() if value is not None}


def _milliseconds(seconds: float | None) -> str | None:
    return None if seconds is None else "-1" if isinf(seconds) else str(round(seconds * 1_000))


@dataclass(frozen=True)
class Stream:
    """A topic and the raw table that it lands in.

    `output` and `commit_log` are the locations of data files and of the write-ahead commit log; None means a default location
    in the warehouse. `avro_schema` is the text of the .avsc if the format is Avro or Debezium. Debezium's messages bring their
    own schemas, so `columns` are the minimum that the table has. `framing` says whether Avro messages start with the id of
    their schema in a registry. `every_seconds` is the interval of its generator, unless a command overrides it. `through` is
    the path of the receiver that the generator sends events to; None means the topic itself. The raw table's snapshots stay for
    `snapshots_for` seconds; None means for as long as the settings of maintenance say.
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
    topic_settings: TopicSettings = TopicSettings()
    snapshots_for: float | None = None

    @property
    def may_need_registry(self) -> bool:
        """Whether messages may refer to a schema in the registry."""
        return self.format == "debezium" or (self.format == "avro" and self.framing != "none")


def configs_of(streams: Iterable[Stream]) -> dict[str, dict[str, str]]:
    """Return the settings of each topic that streams declare, by Kafka's names."""
    configs: dict[str, dict[str, str]] = {}
    for stream in streams:
        configs.setdefault(stream.topic, {}).update(stream.topic_settings.config)
    return configs


@dataclass(frozen=True)
class OwnQuery:
    """A question about the pipeline's tables and the DuckDB SQL that answers it."""

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
    """A function of a pipeline's HTTP source that receives signed webhooks as events of `streams` or `other`.

    `secret` is the name of the environment variable that holds the secret. The first of `signatures` is accepted, and the
    others only if the environment enables them. `batches` says whether a body may be a list of payloads.
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
    """A server that receives events over HTTP: the Python file with its functions, and its preferred port."""

    file: Path
    port: int
    receivers: tuple[Receiver, ...]
    webhooks: tuple[Webhook, ...] = ()

    @property
    def functions(self) -> tuple[str, ...]:
        return (*(receiver.function for receiver in self.receivers), *(webhook.function for webhook in self.webhooks))


@dataclass(frozen=True)
class Seeder:
    """A program that fills the pipeline's source database: its Python file and its preferred port."""

    file: Path
    port: int


@dataclass(frozen=True)
class ByHand:
    """A manual change for the demo: a statement for psql, and a DuckDB query on the lake whose result it changes."""

    change: str
    see: str


@dataclass(frozen=True)
class Capture:
    """A Postgres database whose changes Debezium writes to Kafka.

    `database` is a database in the embedded Postgres; `url` replaces it by one on another server. `migrations` is a folder of
    SQL files that create its tables, `connectors` a folder of connector templates. With `format` avro the messages' schemas are
    in a registry. `stage` is the file that defines the stage tables. `by_hand` is the manual change of the demo.
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
    """A layer table that is published to Postgres.

    `ddl` creates the table `name` and its indexes. Its `primary_key` has the keys of `source`.
    """

    name: str
    source: TableName
    ddl: str
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class Serving:
    """What a pipeline serves: tables in Postgres, and a Python file with its own pages."""

    postgres: tuple[PostgresTable, ...] = ()
    pages: Path | None = None


@dataclass(frozen=True)
class PersonColumns:
    """Spark SQL expressions over a raw table's columns that identify the person of a row.

    `ids` are grouped by their system, such as `shopify`; an expression may return several in an array. A row also belongs to a
    person whose identifiers occur in a column of `text`.
    """

    emails: tuple[str, ...] = ()
    phones: tuple[str, ...] = ()
    ids: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    text: tuple[str, ...] = ()


@dataclass(frozen=True)
class ErasureRequests:
    """The rows of a stream that request a person's erasure, which meet `where`. `id` identifies a request."""

    stream: str
    where: str
    id: str
    whose: PersonColumns


@dataclass(frozen=True)
class People:
    """The person columns of a pipeline by stream, and the table of entities that groups records by person, if any."""

    streams: Mapping[str, PersonColumns]
    entities: TableName | None = None
    requests: tuple[ErasureRequests, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """A pipeline: its streams, the tables that it builds from them in dependency order, and its settings."""

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
        """Return the stream of this name, which must exist."""
        return next(stream for stream in self.streams if stream.name == name)
