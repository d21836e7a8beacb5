"""Export a pipeline as a dbt project: SQL tables become models, other tables sources, keys and expectations tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import yaml

from headrace.errors import SettingsError, SpecError
from headrace.export.dbt_check import find_unsupported
from headrace.export.dbt_models import Dialect, condition_sql, differences, escape_jinja, model_sql, quote
from headrace.export.dbt_profile import DATABASE, PACKAGES, PLUGIN, profile_of, readme_of
from headrace.export.written import check_folder
from headrace.plurals import count_of
from headrace.settings import Settings
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable, Query
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.sql.lineage import Lineage, trace_lineage

_PLUGIN_FILE = Path(__file__).with_name("dbt_plugin.py")  # copied, not imported: it needs dbt
_WRITTEN = "Written by headrace export dbt"
_SEVERITY = {"warn": "warn", "fail": "error"}

_TESTS = {
    "tests/generic/unique_together.sql": """\
{% test unique_together(model, columns) %}
SELECT {{ columns | join(', ') }}
FROM {{ model }}
GROUP BY {{ columns | join(', ') }}
HAVING count(*) > 1
{% endtest %}
""",
    "tests/generic/holds.sql": """\
{% test holds(model, condition) %}
SELECT *
FROM {{ model }}
WHERE NOT coalesce({{ condition }}, false)
{% endtest %}
""",
}
_SCHEMA_MACRO = """\
{# Models use the namespaces of Headrace's tables as schemas, in a separate database. #}
{% macro generate_schema_name(custom_schema_name, node) %}{{ custom_schema_name or target.schema }}{% endmacro %}
"""


@dataclass(frozen=True)
class DbtProject:
    """The files of a project by path, and notes about what dbt can't represent."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


def export_project(settings: Settings, pipeline: Pipeline, *, folder: Path, dialect: str) -> tuple[str, ...]:
    """Write the dbt project of a pipeline, and return the messages to print."""
    known: tuple[Dialect, ...] = get_args(Dialect)
    chosen = next((option for option in known if option == dialect), None)
    if chosen is None:
        raise SettingsError(f'unknown dialect "{dialect}"', where="--dialect", next_step=f"Dialects are: {', '.join(known)}.")
    home = Path(os.path.relpath(settings.home, folder.resolve())).as_posix()
    project = dbt_project(pipeline, dialect=chosen, home=home)
    write_project(project, folder)
    models = sum(name.startswith("models/") and name.endswith(".sql") for name in project.files)
    return (
        *project.notes,
        f"{folder} has {count_of(models, 'model')}. Next: pip install {PACKAGES[chosen]}, then in {folder}: dbt build",
    )


def dbt_project(pipeline: Pipeline, *, dialect: Dialect, home: str) -> DbtProject:
    """Return the dbt project of a pipeline. `home` is Headrace's home, relative to the project's folder.

    A table whose query DuckDB can't run becomes a source, which Headrace builds, with a note about its file and line. A
    pipeline without any table that can be a model raises a SpecError.
    """
    lineage = trace_lineage(pipeline)
    candidates = [table for table in pipeline.tables if _is_model(table)]
    refused: Mapping[TableName, SpecError] = {}
    if dialect == "duckdb":
        refused = find_unsupported(pipeline, candidates, {table.table: _columns(lineage, table) for table in candidates})
    models = [table for table in candidates if table.table not in refused]
    if candidates and not models:
        raise next(iter(refused.values()))
    if not models:
        raise SpecError(
            "the pipeline has no SQL tables to export as models",
            where=f"pipeline {pipeline.name}",
            next_step="Add a table, such as staging/orders.sql, and export again.",
        )
    project = _Project(pipeline, models, lineage, dialect)
    profile = profile_of(dialect, home=home, tables=project.source_names, hidden=project.hidden_columns)
    files = {
        "dbt_project.yml": _yaml(project.settings()),
        "profiles.yml": _yaml({pipeline.name: profile}),
        "README.md": readme_of(pipeline.name, dialect, home=home),
        ".gitignore": f"target/\nlogs/\ndbt_packages/\n{DATABASE}*\n__pycache__/\n",
        "models/sources.yml": _yaml({"version": 2, "sources": project.sources()}),
        **_TESTS,
    }
    if dialect == "duckdb":
        files[f"{PLUGIN}.py"] = _PLUGIN_FILE.read_text(encoding="utf-8")
        files["macros/generate_schema_name.sql"] = _SCHEMA_MACRO
    notes = [
        f"{table.table}: a model can't represent {beyond}; it is a source, which Headrace builds"
        for table in pipeline.tables
        if (beyond := _beyond_sql(table))
    ]
    notes += [f"{error.where}: {error.what}; {table} is a source, which Headrace builds" for table, error in refused.items()]
    for table in models:
        files[f"models/{table.layer}/{project.names[table.table]}.sql"] = project.model(table)
        different = differences(table) if dialect == "duckdb" else ()
        if different:
            notes.append(
                f"{table.table}: DuckDB differs from Spark in {', '.join(different)}; check the model before you use it"
            )
    for layer in dict.fromkeys(table.layer for table in models):
        described = [project.described(table, notes) for table in models if table.layer == layer]
        files[f"models/{layer}/{layer}.yml"] = _yaml({"version": 2, "models": described})
    return DbtProject(files, tuple(notes))


def write_project(project: DbtProject, folder: Path) -> None:
    """Write the files, and remove files of an earlier export that are no longer part of the project.

    Idempotent. A non-empty folder without an exported project raises a SpecError and is not changed.
    """
    check_folder(folder)
    marker = folder / "dbt_project.yml"
    if folder.exists() and any(folder.iterdir()) and not _is_exported(marker):
        raise SpecError(
            "the folder is not empty and was not written by headrace export dbt",
            where=str(folder),
            next_step="Choose another folder: --into FOLDER",
        )
    for path in folder.glob("models/**/*"):
        if path.suffix in (".sql", ".yml") and path.relative_to(folder).as_posix() not in project.files and _is_exported(path):
            path.unlink()
    for name, text in project.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _is_model(table: LayerTable) -> bool:
    return isinstance(table.source, Query) and not _beyond_sql(table)


def _beyond_sql(table: LayerTable) -> str | None:
    """Return what a build of the table does that a model can't, or None."""
    if table.kind == "entities":
        return "entities"
    if table.staged:
        return "columns that are added later"
    return "truncates and unchanged values" if table.apply_as_truncates or table.unchanged else None


def _default_about(table: LayerTable) -> str:
    if table.kind == "entities":
        return "Entities."
    if table.staged:
        return "A stage table."
    return "A table in Spark SQL." if isinstance(table.source, Query) else "A table in Python."


class _Project:
    def __init__(self, pipeline: Pipeline, models: Sequence[LayerTable], lineage: Lineage, dialect: Dialect) -> None:
        self._pipeline = pipeline
        self._lineage = lineage
        self._dialect: Dialect = dialect
        self.names = _model_names(models)
        self._modelled = modelled = {model.table for model in models}
        # raw tables, and tables that are not models
        self._sources = dict.fromkeys(read for model in models for read in model.inputs if read not in modelled)

    def settings(self) -> dict[str, object]:
        name = self._pipeline.name
        configured: dict[str, object] = {"+materialized": "table"}
        if self._dialect == "spark":
            configured["+file_format"] = "iceberg"
        return {
            "name": name,
            "version": "1.0.0",
            "config-version": 2,
            "profile": name,
            "require-dbt-version": [">=1.10.5", "<2.0.0"],
            "flags": {"send_anonymous_usage_stats": False},
            "models": {name: configured},
        }

    @property
    def source_names(self) -> list[str]:
        return [str(name) for name in self._sources]

    @property
    def hidden_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that Headrace adds to the sources that it builds."""
        return {str(table.table): table.added_columns for table in self._pipeline.tables if table.table in self._sources}

    def sources(self) -> list[dict[str, object]]:
        built = {table.table: table for table in self._pipeline.tables if table.table not in self._modelled}
        streams = {stream.table: stream for stream in self._pipeline.streams}
        tables_by_namespace: dict[str, list[dict[str, object]]] = {}
        for name in self._sources:
            if name in built:
                about = built[name].about or _default_about(built[name])
                text = f"{about} Built by Headrace: headrace build {self._pipeline.name}"
            else:
                text = f"Topic {streams[name].topic}, landed by Headrace: headrace land {self._pipeline.name}"
            tables_by_namespace.setdefault(name.namespace, []).append({"name": name.name, "description": escape_jinja(text)})
        return [
            {"name": _flat(namespace), "schema": namespace if self._dialect == "spark" else _flat(namespace), "tables": tables}
            for namespace, tables in tables_by_namespace.items()
        ]

    def model(self, table: LayerTable) -> str:
        references = {name: self._reference(name) for name in table.inputs}
        query = model_sql(table, columns=_columns(self._lineage, table), references=references, dialect=self._dialect)
        config = f"{{{{ config(schema='{table.table.flat_namespace}', alias='{table.table.name}') }}}}"
        return f"{{# {_WRITTEN} from {table.layer}/{table.path.name}: {table.kind}. #}}\n{config}\n{query}\n"

    def described(self, table: LayerTable, notes: list[str]) -> dict[str, object]:
        """Return a model's properties: its description, and tests for its keys and its non-filtering expectations."""
        name = self.names[table.table]
        shown: dict[str, object] = {"name": name}
        if table.about:
            shown["description"] = escape_jinja(table.about)
        tests = [*self._key_tests(table, name), *self._expectation_tests(table, name, notes)]
        if tests:
            shown["data_tests"] = tests
        if table.keys:
            warning = {"severity": "warn"}  # Headrace keeps rows without a key
            shown["columns"] = [
                {"name": key, "data_tests": [{"not_null": {"name": _slug(name, key, "is there"), "config": warning}}]}
                for key in table.keys
            ]
        return shown

    def _key_tests(self, table: LayerTable, name: str) -> Iterator[dict[str, object]]:
        if table.keys:
            keys = [*table.keys, *((HISTORY_COLUMNS[0],) if table.kind == "history" else ())]
            arguments = {"columns": [quote(key, self._dialect) for key in keys]}
            yield {"unique_together": {"name": _slug(name, "has one row of each key"), "arguments": arguments}}

    def _expectation_tests(self, table: LayerTable, name: str, notes: list[str]) -> Iterator[dict[str, object]]:
        for number, expectation in enumerate(table.expectations, start=1):
            if expectation.on_failure not in _SEVERITY:
                continue
            left_out = [column for column in table.except_columns if re.search(rf"\b{re.escape(column)}\b", expectation.that)]
            if left_out:
                notes.append(
                    f'{table.table}: "{expectation.sentence}" is not tested: the table does not have {", ".join(left_out)}'
                )
                continue
            condition = condition_sql(table, expectation.that, line=expectation.line, dialect=self._dialect)
            yield {
                "holds": {
                    "name": _slug(name, str(number), expectation.sentence),
                    "description": escape_jinja(expectation.sentence),
                    "arguments": {"condition": condition},
                    "config": {"severity": _SEVERITY[expectation.on_failure]},
                }
            }

    def _reference(self, name: TableName) -> str:
        if name in self._sources:
            return f"{{{{ source('{name.flat_namespace}', '{name.name}') }}}}"
        return f"{{{{ ref('{self.names[name]}') }}}}"


def _columns(lineage: Lineage, table: LayerTable) -> tuple[str, ...] | None:
    """Return the table's own columns, or None if only an engine can resolve them."""
    table_lineage = lineage.table(table.table)
    if not table_lineage or not table_lineage.whole:
        return None
    return tuple(column.name for column in table_lineage.columns if column.name not in table.added_columns)


def _model_names(models: Sequence[LayerTable]) -> dict[TableName, str]:
    """Return the name of each model: the table's name, with its namespace if it is not unique."""
    short = [model.table.name for model in models]
    return {model.table: model.table.name if short.count(model.table.name) == 1 else model.table.flat for model in models}


def _flat(namespace: str) -> str:
    """Return a namespace as one identifier, as dbt requires."""
    return TableName(namespace, "").flat_namespace


def _slug(*parts: str) -> str:
    return "_".join(re.sub(r"\W+", "_", part).strip("_") for part in parts)


def _yaml(value: object) -> str:
    return f"# {_WRITTEN}\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def _is_exported(path: Path) -> bool:
    return path.is_file() and _WRITTEN in path.read_text(encoding="utf-8").split("\n", 1)[0]
