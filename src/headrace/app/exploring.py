"""Read a lake in a notebook, through Polars and PySpark; it can't land or build."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from headrace.errors import NotFoundError
from headrace.iceberg.catalog.properties import CATALOG_NAME, secret_names
from headrace.iceberg.catalog.spark import open_spark_catalog
from headrace.iceberg.catalog.tables import count_rows, find_catalog, list_tables, load_table
from headrace.servers.java import find_java_home
from headrace.settings import FILE, Settings, load_settings
from headrace.spark.session import spark_jars, start_spark
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import SparkSession

FOLDER = "HEADRACE_NOTEBOOK_FOLDER"
"""The environment variable in which `headrace notebook` passes its working folder."""


class NothingThereError(NotFoundError):
    """A lake lacks a table that a notebook needs. Notebooks show the message without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


@dataclass(frozen=True)
class Lake:
    """The tables of a lake, by their names, such as `shape.storefront.customers`."""

    settings: Settings
    catalog: Catalog

    def names(self, part: str = "") -> tuple[str, ...]:
        """Return the names of all tables whose name contains `part`."""
        return tuple(name for name in list_tables(self.catalog) if part in name)

    def table(self, name: str) -> Table:
        """Return the Iceberg table: its schema, its snapshots, its files."""
        return self.catalog.load_table(name)

    def rows(self, name: str) -> int:
        """Return the number of rows of the table, from its metadata."""
        return count_rows(self.table(name))

    def scan(self, name: str) -> pl.LazyFrame:
        """Return the current snapshot of the table as a lazy Polars frame."""
        import polars as pl

        return pl.scan_iceberg(self.table(name))

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session with the lake as its default catalog, started on first use."""
        java_home = find_java_home(os.environ, cache=self.settings.home / "java")
        jars = spark_jars(self.settings, report=lambda sentence: None)
        spark = start_spark(self.settings, java_home=java_home, jars=jars, conf=secret_names(self.settings))
        session = open_spark_catalog(spark, self.settings)
        session.conf.set("spark.sql.defaultCatalog", CATALOG_NAME)
        return session


def open_lake(*, needs: Sequence[str] = (), first: str = "", environ: Mapping[str, str] | None = None) -> Lake:
    """Return the lake of the notebook's folder.

    Raises a NothingThereError if it lacks a table of `needs`; its next step is to run `first`.
    """
    variables = os.environ if environ is None else environ
    settings = load_settings(flags={}, environ=variables, folder=_folder(variables, Path.cwd()))
    lake = Lake(settings, find_catalog(settings))
    missing = [name for name in needs if load_table(lake.catalog, TableName.parse(name)) is None]
    if missing:
        raise NothingThereError(
            f"table not found in this lake: {missing[0]}",
            where=str(settings.home),
            next_step=f"Run this first, then start again: {first}",
        )
    return lake


def _folder(environ: Mapping[str, str], start: Path) -> Path:
    """Return the folder where `headrace notebook` was run, else the nearest folder with a lake or settings."""
    if environ.get(FOLDER):
        return Path(environ[FOLDER])
    above = (folder for folder in (start, *start.parents) if (folder / ".headrace").is_dir() or (folder / FILE).is_file())
    return next(above, start)
