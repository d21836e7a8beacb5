"""The commands that maintain and register tables."""

from __future__ import annotations

import os
from typing import Annotated, Optional

import typer

from headrace.cli.shared import AsJson, err, out, quiet, say, settings_here
from headrace.plurals import count_of


def maintain(
    pipeline: Annotated[Optional[str], typer.Argument(metavar="PIPELINE", help="default: all")] = None,
    table: Annotated[Optional[str], typer.Option("--table", help="one table")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be done, and change nothing")] = False,
    as_json: AsJson = False,
) -> None:
    """Compact tables, expire snapshots and delete orphan files.

    Safe beside landing, builds and queries: keeps what they still read, and yields to a concurrent build.
    """
    from headrace.app.watching import load_pipelines
    from headrace.cli.render.maintenance import show_foreseen, show_maintained
    from headrace.operations.maintain.maintaining import list_existing, list_work, maintain_all, preview_all
    from headrace.sessions.retry_policy import for_command
    from headrace.sessions.shared_spark import spark_session

    settings = settings_here()
    pipelines, broken = load_pipelines([pipeline] if pipeline else [], environ=os.environ, folder=settings.folder)
    for name, error in broken.items():
        err.print(f"{name} is left out: {error}", highlight=False, markup=False, soft_wrap=True)
    tell = quiet if as_json else say
    retry_policy = None if dry_run else for_command("maintenance", report=tell)
    work = list_existing(settings, list_work(settings, pipelines, table=table), retry_policy=retry_policy)
    if dry_run:
        show_foreseen(out, preview_all(settings, work), as_json=as_json)
    elif not work:
        show_maintained(out, (), as_json=as_json)
    else:
        with spark_session(settings, report=tell) as spark:
            show_maintained(out, maintain_all(settings, spark, work, retry_policy=retry_policy), as_json=as_json)
    if broken:
        raise typer.Exit(1)


def register(
    tables: Annotated[
        Optional[list[str]], typer.Argument(metavar="TABLE", help="such as raw.orders; default: all that the catalog lacks")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="list the tables, and change nothing")] = False,
) -> None:
    """Register tables that a catalog lost but the warehouse has.

    Landing and builds then resume, because their progress is stored in the tables.
    """
    from headrace.iceberg.catalog.registration import find_unregistered, register_tables
    from headrace.iceberg.catalog.tables import open_catalog
    from headrace.spec.model.pipeline import TableName

    settings = settings_here()
    catalog, wanted = open_catalog(settings), [TableName.parse(name) for name in tables or ()]
    unregistered = (
        find_unregistered(catalog, settings.warehouse) if dry_run else register_tables(catalog, settings.warehouse, wanted)
    )
    for table in unregistered:
        say(f"{table.name}: {count_of(table.rows, 'row')}{'' if dry_run else ', registered'}")
    if not unregistered:
        say("The catalog has every table in the warehouse.")
