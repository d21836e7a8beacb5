"""A lake to explore in a notebook: its tables through Polars and PySpark. Nothing can be landed or built with it."""

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
"""The variable by which `headrace notebook` says in which folder it was typed."""


class NothingThereError(NotFoundError):
    """A lake that lacks what a notebook is about; a notebook shows its words alone, without where it was raised."""

    def _render_traceback_(self) -> list[str]:
        return str(self).splitlines()


@dataclass(frozen=True)
class Lake:
    """The tables of a lake, by their names, such as `shape.storefront.customers`."""

    settings: Settings
    catalog: Catalog

    def names(self, part: str = "") -> tuple[str, ...]:
        """Return the names of all tables that have this in their name."""
        return tuple(name for name in list_tables(self.catalog) if part in name)

    def table(self, name: str) -> Table:
        """Return the Iceberg table: its schema, its snapshots, its files."""
        return self.catalog.load_table(name)

    def rows(self, name: str) -> int:
        """Return how many rows the table has, from its metadata."""
        return count_rows(self.table(name))

    def scan(self, name: str) -> pl.LazyFrame:
        """Return the table as Polars reads it, when it is collected, as it is now."""
        import polars as pl

        return pl.scan_iceberg(self.table(name))

    @cached_property
    def spark(self) -> SparkSession:
        """A Spark session that knows the lake's tables by their names; started when it is first asked for."""
        java_home = find_java_home(os.environ, cache=self.settings.home / "java")
        jars = spark_jars(self.settings, report=lambda sentence: None)
        spark = start_spark(self.settings, java_home=java_home, jars=jars, conf=secret_names(self.settings))
        session = open_spark_catalog(spark, self.settings)
        session.conf.set("spark.sql.defaultCatalog", CATALOG_NAME)
        return session


def open_lake(*, needs: Sequence[str] = (), first: str = "", environ: Mapping[str, str] | None = None) -> Lake:
    """Return the lake of the folder that the notebook belongs to.

    Where it lacks a table that is needed, that is an error which says what to run `first`.
    """
    found = os.environ if environ is None else environ
    settings = load_settings(flags={}, environ=found, folder=_folder(found, Path.cwd()))
    lake = Lake(settings, find_catalog(settings))
    missing = [name for name in needs if load_table(lake.catalog, TableName.parse(name)) is None]
    if missing:
        raise NothingThereError(
            f"this lake has no {missing[0]} yet",
            where=str(settings.home),
            next_step=f"Run this first, then start again: {first}",
        )
    return lake


def _folder(environ: Mapping[str, str], start: Path) -> Path:
    """Return the folder that `headrace notebook` was typed in, or else the next one above that has a lake or settings."""
    if environ.get(FOLDER):
        return Path(environ[FOLDER])
    above = (each for each in (start, *start.parents) if (each / ".headrace").is_dir() or (each / FILE).is_file())
    return next(above, start)
