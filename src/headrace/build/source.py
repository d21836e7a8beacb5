"""Run a table's query or function on DataFrames as its inputs."""

from __future__ import annotations

import importlib.util
import re
import sys
import uuid
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException

from headrace.errors import HeadraceError, SpecError
from headrace.spec.model.layers import LayerTable, Query
from headrace.spec.model.pipeline import TableName

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession

_POSITION = re.compile(r"\(line (?P<line>\d+), pos (?P<pos>\d+)\)")


def run_source(spark: SparkSession, table: LayerTable, inputs: Mapping[TableName, DataFrame]) -> DataFrame:
    """Return the rows of the table's query or function on these inputs, without computing them.

    Raises SpecError, with line and column, for an error in the file.
    """
    if isinstance(table.source, Query):
        return _run_query(spark, table, table.source, inputs)
    function = getattr(_load_module(table.path), table.source.name)
    arguments = {name: spark if source is None else inputs[source] for name, source in table.source.parameters}
    try:
        rows: DataFrame = function(**arguments)
    except HeadraceError:
        raise
    except Exception as error:
        line = _line_in(error, table.path) or table.lines.get("", 1)
        what = f"the function failed: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        raise table.error(what, at=line, fix="Fix the function") from error
    return rows


def _run_query(spark: SparkSession, table: LayerTable, query: Query, inputs: Mapping[TableName, DataFrame]) -> DataFrame:
    views: dict[TableName, str] = {}
    for name in {reference.table for reference in query.references}:
        views[name] = f"headrace_{uuid.uuid4().hex}"
        inputs[name].createTempView(views[name])
    text, moved = query.text, []
    for reference in sorted(query.references, key=lambda reference: reference.start, reverse=True):
        view = views[reference.table]
        text = text[: reference.start] + view + text[reference.end :]
        moved.append((reference.start, len(view) - (reference.end - reference.start)))
    try:
        return spark.sql(text)
    except (ParseException, AnalysisException) as error:
        raise _translate(error, table, query, text, moved, {view: str(name) for name, view in views.items()}) from None
    finally:
        for view in views.values():
            spark.catalog.dropTempView(view)


def _translate(
    error: PySparkException,
    table: LayerTable,
    query: Query,
    text: str,
    moved: list[tuple[int, int]],
    names: Mapping[str, str],
) -> SpecError:
    """Return Spark's error with the table names and the position of the file."""
    contexts = error.getQueryContext() or []
    position = _POSITION.search(str(error))
    if contexts:
        offset = contexts[0].startIndex()
    elif position:
        lines = text.split("\n")
        offset = sum(len(line) + 1 for line in lines[: int(position["line"]) - 1]) + int(position["pos"])
    else:
        offset = 0
    for start, longer in sorted(moved):
        if start < offset:
            offset = max(start, offset - longer)
    location = query.locate(offset)
    message = str(error).splitlines()[0]
    for view, name in names.items():
        message = message.replace(f"`{view}`", name).replace(view, name)
    message = re.sub(r"\s*SQLSTATE: \w+.*$", "", message)
    return table.error(
        f"Spark refuses the query: {message}{location.note}",
        at=location.line,
        column=None if table.staged else location.column,
        fix="Fix the query",
    )


def _line_in(error: BaseException, path: Path) -> int | None:
    """Return the last line of a file in an error's traceback."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == path:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@lru_cache(maxsize=256)
def _load_module(path: Path) -> ModuleType:
    """Return the module of a table's file, loaded once."""
    name = f"headrace_table_{path.parent.name}_{path.stem}_{abs(hash(path))}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SpecError("the file can't be loaded as Python", where=str(path), next_step="Rename it so that it ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        line = _line_in(error, path) or 1
        raise SpecError(
            f"the file can't be loaded: {type(error).__name__}: {error}",
            where=f"{path}:{line}",
            next_step="Fix the error in this line.",
        ) from error
    return module
