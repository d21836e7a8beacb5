"""A project: a folder with pipelines and the lake that they fill. The commands are a thin layer over it."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Literal

from headrace.api.results import Rows, StreamLanding, TableBuild
from headrace.errors import SettingsError, SpecError
from headrace.settings import FILE, STACK, Settings, load_settings
from headrace.settings.private import private_state
from headrace.spec import list_pipelines, load_pipeline
from headrace.spec.loading.folders import FILE as PIPELINE_FILE
from headrace.spec.model.pipeline import Pipeline

if TYPE_CHECKING:
    from datetime import datetime

    import duckdb
    from pyiceberg.catalog import Catalog
    from pyspark.sql import SparkSession

    from headrace.api.running import Run
    from headrace.api.tables import Table
    from headrace.app.display import Display
    from headrace.operations.quality import ExpectationReport
    from headrace.operations.verification import Verification
    from headrace.serving.figures import PipelineStatus

EngineName = Literal["duckdb", "spark", "trino", "clickhouse", "pyiceberg", "polars"]

_LOG = logging.getLogger(__name__)


class Project:
    """The pipelines of a folder, and their lake. `headrace.open` returns one.

    The first call that needs Spark starts it. `close`, or the end of a `with` block, stops it. Methods that take the name of a
    pipeline also accept the path of its folder. Without a name they mean the only pipeline of the project.
    """

    def __init__(self, settings: Settings, *, environ: Mapping[str, str], display: Display) -> None:
        self._settings = settings
        self._environ = environ
        self._display = display
        self._resources = ExitStack()
        self._keeps_spark = False

    @property
    def settings(self) -> Settings:
        """The settings of the profile."""
        return self._settings

    @property
    def pipelines(self) -> tuple[str, ...]:
        """The names of the pipelines in `pipelines/`, or of the built-in ones if there are none."""
        listed = list_pipelines(self._settings.folder)
        own = tuple(pipeline.name for pipeline in listed if not pipeline.built_in)
        return own or tuple(pipeline.name for pipeline in listed)

    def pipeline(self, name: str | None = None) -> Pipeline:
        """Return a pipeline as its files declare it. Raises a SpecError for the first mistake in them."""
        return load_pipeline(name or self._only_pipeline(), environ=self._environ, folder=self._settings.folder)

    def land(
        self,
        pipeline: str | None = None,
        *,
        once: bool = True,
        accept_gaps: bool = False,
        replaced_topic: Literal["restart", "continue"] | None = None,
        take_over: bool = False,
        stop: Event | None = None,
    ) -> tuple[StreamLanding, ...]:
        """Land a pipeline's topics in its raw tables, and return what landed of each stream.

        With `once`, land all messages that are there at the start; otherwise, land until `stop` is set. `accept_gaps` continues
        past offsets that Kafka has deleted. After a topic was deleted and created again, `replaced_topic` lands the new topic
        from its beginning (`restart`) or goes on at the recorded offsets (`continue`). `take_over` starts although another
        application holds the pipeline. Raises a LandingError if a stream needs a decision.
        """
        from headrace.app.landing import LandingRequest, land_pipeline
        from headrace.landing.topic_choice import ReplacedTopic

        choice = ReplacedTopic(replaced_topic) if replaced_topic else None
        request = LandingRequest(once, accept_gaps, choice, take_over, stop)
        loaded = self.pipeline(pipeline)
        with self._writing():
            totals = land_pipeline(self._settings, loaded, request, display=self._display)
        return tuple(StreamLanding(total.label, total.rows, total.quarantined) for total in totals)

    def build(
        self, pipeline: str | None = None, *, table: str | None = None, full_refresh: bool = False, check: bool = True
    ) -> tuple[TableBuild, ...]:
        """Build the tables whose inputs have changed, publish them, and return what was done with each.

        `table` limits the build to one table and its upstream tables. `full_refresh` rebuilds all rows. A failed table blocks
        only its downstream tables; with `check`, the first table's error is raised at the end.
        """
        from headrace.api.outcomes import describe_build
        from headrace.app.board import lines
        from headrace.app.building import build_pipeline

        loaded, board = self.pipeline(pipeline), lines(self._display.report)
        with self._writing():
            outcomes = build_pipeline(self._settings, loaded, table=table, full_refresh=full_refresh, board=board)
        builds = tuple(describe_build(outcome) for outcome in outcomes)
        for build in builds:
            if check and build.error:
                raise build.error
        return builds

    @contextmanager
    def run(self, *pipelines: str, take_over: bool = False) -> Iterator[Run]:
        """Run pipelines while the `with` block runs: land, build and publish live. Without names, run all pipelines.

        `take_over` starts although another application holds a pipeline. At the end of the block, the current batches and
        builds are finished, and an error of the run is raised.
        """
        from headrace.api.running import run_pipelines

        loaded = [self.pipeline(name) for name in pipelines or self.pipelines]
        with (
            self._writing(),
            run_pipelines(self._settings, loaded, display=self._display, take_over=take_over) as run,
        ):
            yield run

    def verify(self, pipeline: str | None = None, *, wait: float = 300.0) -> Verification:
        """Compare the lake with its topics offset by offset, and captured and published tables with Postgres row by row.

        Waits up to `wait` seconds for the lake to catch up with Postgres. `holds` of the result is False if a row is missing,
        duplicated or different.
        """
        from headrace.operations.verification import verify_pipeline

        loaded = self.pipeline(pipeline)
        with self._writing():
            return verify_pipeline(self._settings, loaded, report=self._display.report, seconds=wait)

    def publish(self, pipeline: str | None = None, *, table: str | None = None, full: bool = False) -> int:
        """Publish a pipeline's tables to Postgres, and return how many changed.

        `table` limits it to one table, by its name in Postgres or in the lake. `full` compares every row, and changes each
        table to the columns and types of its DDL. Builds publish what they build, so this is for repairs.
        """
        from headrace.app.board import lines
        from headrace.app.building import publish_tables

        loaded, board = self.pipeline(pipeline), lines(self._display.report)
        with self._writing():
            return publish_tables(self._settings, loaded, table=table, full=full, board=board)

    def quality(self, pipeline: str | None = None) -> tuple[ExpectationReport, ...]:
        """Return each expectation of a pipeline's tables: the rows that fail it now, and in the last build."""
        from headrace.operations.quality import report_quality

        return report_quality(self._settings, self.pipeline(pipeline))

    def status(self, *pipelines: str) -> tuple[PipelineStatus, ...]:
        """Return the rows, lag and freshness of each stream and table. Without names, of all pipelines."""
        from headrace.app.figures import read_now

        loaded = [self.pipeline(name) for name in pipelines or self.pipelines]
        return read_now(self._settings, loaded, report=self._display.report)

    def query(self, sql: str, *, engine: EngineName = "duckdb", at: str | datetime | int | None = None) -> Rows:
        """Return the rows of one SELECT in the engine's SQL, with table names as `namespace.table`.

        Tables are read as they are, or as of `at`: a time (in UTC without an offset) at which every table is read, or the id
        of a snapshot of the query's only table.

        Raises a QueryError for a query that is not allowed or fails.
        """
        from headrace.app.querying import query
        from headrace.serving.sql.engines.names import Engine

        return Rows(query(self._settings, sql, engine=Engine(engine), at=at, report=self._display.report))

    def tables(self) -> tuple[str, ...]:
        """Return the names of all tables of the lake."""
        from headrace.iceberg.catalog.tables import list_tables

        return list_tables(self.catalog)

    def table(self, name: str, *, at: str | datetime | int | None = None) -> Table:
        """Return a table of the lake, as it is or as of `at`: a time (in UTC without an offset) or a snapshot id.

        Raises a NotFoundError if it does not exist, and a QueryError if it has no snapshot at that moment.
        """
        from headrace.api.tables import find_table

        return find_table(self, name, at)

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session with the lake as its default catalog, started on first use."""
        from headrace.iceberg.catalog.properties import CATALOG_NAME
        from headrace.iceberg.catalog.spark import open_spark_catalog
        from headrace.sessions.shared_spark import spark_session

        with private_state(self._settings):
            spark = self._resources.enter_context(spark_session(self._settings, report=self._display.report))
        session = open_spark_catalog(spark, self._settings)
        session.conf.set("spark.sql.defaultCatalog", CATALOG_NAME)
        return session

    @cached_property
    def duckdb(self) -> duckdb.DuckDBPyConnection:
        """The DuckDB connection of the relations that tables return."""
        from headrace.iceberg.files.storage import Storage
        from headrace.iceberg.rows.duck import connect_duckdb

        connection = connect_duckdb(storage=Storage.of(self.catalog.properties))
        self._resources.callback(connection.close)
        return connection

    def close(self) -> None:
        """Stop Spark and close DuckDB, if they were started. The project can be used again."""
        self._resources.close()
        self._keeps_spark = False
        for name in ("spark", "duckdb"):
            self.__dict__.pop(name, None)

    def __enter__(self) -> Project:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"headrace.open({str(self._settings.folder)!r}, profile={self._settings.profile!r})"

    @property
    def catalog(self) -> Catalog:
        """The PyIceberg catalog of the lake."""
        from headrace.iceberg.catalog.tables import find_catalog

        return find_catalog(self._settings)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Make new files private in this block, and keep a Spark that it starts until `close`."""
        from headrace.sessions.shared_spark import keep_spark

        if not self._keeps_spark:
            self._resources.enter_context(keep_spark())
            self._keeps_spark = True
        with private_state(self._settings):
            yield

    def _only_pipeline(self) -> str:
        names = self.pipelines
        if len(names) > 1:
            raise SpecError(
                f"the project has {len(names)} pipelines: {', '.join(names)}",
                where=str(self._settings.folder),
                next_step=f'Name one, such as "{names[0]}".',
            )
        return names[0]


def open_project(
    folder: str | Path | None = None,
    *,
    profile: str | None = None,
    report: Callable[[str], None] | None = None,
    environ: Mapping[str, str] | None = None,
) -> Project:
    """Return the project of a folder: the one in which you would run the commands.

    Without a folder, it is the nearest one above the working folder that has a `.headrace` or a `headrace.toml`. `profile` is
    the section of `headrace.toml` to use. `report` is a function such as `print` that receives progress, one line at a time; by
    default it goes to the logger `headrace`. `environ` replaces the environment variables. Opening starts and creates nothing.
    Raises a SettingsError for a wrong setting, and an UnavailableError if the servers of the profile `stack` don't run.
    """
    from headrace.app.display import LineDisplay

    variables = os.environ if environ is None else environ
    path = _nearest_project(variables, Path.cwd()) if folder is None else Path(folder)
    if not path.is_dir() or (path / PIPELINE_FILE).is_file():
        what = f"{path} is the folder of a pipeline, not of a project" if path.is_dir() else f"not found: folder {path}"
        raise SettingsError(what, next_step="Open the folder that has headrace.toml or pipelines/.")
    settings = load_settings(flags={"profile": profile} if profile else {}, environ=variables, folder=path)
    if settings.profile == STACK:
        from headrace.servers.stack import stack_settings

        settings = stack_settings(settings)
    return Project(settings, environ=variables, display=LineDisplay(report or _LOG.info))


def _nearest_project(environ: Mapping[str, str], start: Path) -> Path:
    from headrace.app.notebook import FOLDER

    if environ.get(FOLDER):
        return Path(environ[FOLDER])
    above = (folder for folder in (start, *start.parents) if (folder / ".headrace").is_dir() or (folder / FILE).is_file())
    return next(above, start)
