"""A dbt project of a pipeline: SQL tables are models, what dbt can't make is a source, keys and expectations are tests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import yaml

from headrace.errors import SettingsError, SpecError
from headrace.export.dbt_check import find_refused
from headrace.export.dbt_models import Dialect, condition_sql, differences, escape_jinja, model_sql, quote
from headrace.export.dbt_profile import DATABASE, PACKAGES, PLUGIN, profile_of, readme_of
from headrace.export.written import check_folder
from headrace.plurals import count_of
from headrace.settings import Settings
from headrace.spec.model.layers import HISTORY_COLUMNS, LayerTable, Query
from headrace.spec.model.pipeline import Pipeline, TableName
from headrace.spec.sql.lineage import Lineage, trace_lineage

_PLUGIN_FILE = Path(__file__).with_name("dbt_plugin.py")  # copied, not imported: only dbt has what it needs
_WRITTEN = "Written by headrace export dbt"
_SEVERITY = {"count": "warn", "fail": "error"}

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
{# Models have the namespaces of Headrace's tables; they are in a database of their own. #}
{% macro generate_schema_name(custom_schema_name, node) %}{{ custom_schema_name or target.schema }}{% endmacro %}
"""


@dataclass(frozen=True)
class DbtProject:
    """The files of a project, by their paths in it, and what could not be said in dbt."""

    files: Mapping[str, str]
    notes: tuple[str, ...]


def export_project(settings: Settings, pipeline: Pipeline, *, folder: Path, dialect: str) -> tuple[str, ...]:
    """Write the project of a pipeline, and return what there is to say about it."""
    known: tuple[Dialect, ...] = get_args(Dialect)
    chosen = next((each for each in known if each == dialect), None)
    if chosen is None:
        raise SettingsError(f'"{dialect}" is no dialect', where="--dialect", next_step=f"Dialects are: {', '.join(known)}.")
    home = Path(os.path.relpath(settings.home, folder.resolve())).as_posix()
    project = dbt_project(pipeline, dialect=chosen, home=home)
    write_project(project, folder)
    models = sum(name.startswith("models/") and name.endswith(".sql") for name in project.files)
    return (
        *project.notes,
        f"{folder} has {count_of(models, 'model')}. Next: pip install {PACKAGES[chosen]}, then in {folder}: dbt build",
    )


def dbt_project(pipeline: Pipeline, *, dialect: Dialect, home: str) -> DbtProject:
    """Return the project of a pipeline. `home` is where Headrace keeps its state, seen from the project's folder.

    A table whose query DuckDB can't run is a source, which Headrace builds, and a note names its file and line. A pipeline
    without any SQL table that can be a model is a SpecError.
    """
    lineage = trace_lineage(pipeline)
    candidates = [each for each in pipeline.tables if _is_model(each)]
    refused: Mapping[TableName, SpecError] = {}
    if dialect == "duckdb":
        refused = find_refused(pipeline, candidates, {each.table: _columns(lineage, each) for each in candidates})
    models = [each for each in candidates if each.table not in refused]
    if candidates and not models:
        raise next(iter(refused.values()))
    if not models:
        raise SpecError(
            "there are no tables in SQL, so there would be no models",
            where=f"pipeline {pipeline.name}",
            next_step="Add one, such as staging/orders.sql, and export again.",
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
        f"{each.table}: SQL can't tell {beyond}; it is a source, which Headrace builds"
        for each in pipeline.tables
        if (beyond := _beyond_sql(each))
    ]
    notes += [f"{error.where}: {error.what}; {table} is a source, which Headrace builds" for table, error in refused.items()]
    for table in models:
        files[f"models/{table.layer}/{project.names[table.table]}.sql"] = project.model(table)
        different = differences(table) if dialect == "duckdb" else ()
        if different:
            notes.append(
                f"{table.table}: DuckDB has no {', '.join(different)} as Spark has; look at the model before you use it"
            )
    for layer in dict.fromkeys(each.layer for each in models):
        described = [project.described(each, notes) for each in models if each.layer == layer]
        files[f"models/{layer}/{layer}.yml"] = _yaml({"version": 2, "models": described})
    return DbtProject(files, tuple(notes))


def write_project(project: DbtProject, folder: Path) -> None:
    """Write the files; those of an earlier export that are no longer part of it are removed.

    Idempotent. A folder that holds anything else than an exported project is a SpecError, and stays as it is.
    """
    check_folder(folder)
    marker = folder / "dbt_project.yml"
    if folder.exists() and any(folder.iterdir()) and not _is_ours(marker):
        raise SpecError(
            "the folder is not empty and was not written by headrace export dbt",
            where=str(folder),
            next_step="Name another folder: --into FOLDER",
        )
    for path in folder.glob("models/**/*"):
        if path.suffix in (".sql", ".yml") and path.relative_to(folder).as_posix() not in project.files and _is_ours(path):
            path.unlink()
    for name, text in project.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def _is_model(table: LayerTable) -> bool:
    return isinstance(table.source, Query) and not _beyond_sql(table)


def _beyond_sql(table: LayerTable) -> str | None:
    """Return what a build of the table does that a model doesn't."""
    if table.kind == "entities":
        return "entities"
    if table.staged:
        return "columns that come while it runs"
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
        self._made = made = {each.table for each in models}
        # raw tables, and those that no model makes
        self._sources = dict.fromkeys(read for each in models for read in each.inputs if read not in made)

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
        return [str(each) for each in self._sources]

    @property
    def hidden_columns(self) -> dict[str, tuple[str, ...]]:
        """The columns that Headrace adds to those sources that it builds."""
        return {str(each.table): each.added_columns for each in self._pipeline.tables if each.table in self._sources}

    def sources(self) -> list[dict[str, object]]:
        built = {each.table: each for each in self._pipeline.tables if each.table not in self._made}
        streams = {each.table: each for each in self._pipeline.streams}
        found: dict[str, list[dict[str, object]]] = {}
        for name in self._sources:
            if name in built:
                about = built[name].about or _default_about(built[name])
                text = f"{about} Built by Headrace: headrace build {self._pipeline.name}"
            else:
                text = f"Topic {streams[name].topic}, landed by Headrace: headrace land {self._pipeline.name}"
            found.setdefault(name.namespace, []).append({"name": name.name, "description": escape_jinja(text)})
        return [
            {"name": _flat(each), "schema": each if self._dialect == "spark" else _flat(each), "tables": tables}
            for each, tables in found.items()
        ]

    def model(self, table: LayerTable) -> str:
        references = {name: self._reference(name) for name in table.inputs}
        query = model_sql(table, columns=_columns(self._lineage, table), references=references, dialect=self._dialect)
        config = f"{{{{ config(schema='{table.table.flat_namespace}', alias='{table.table.name}') }}}}"
        return f"{{# {_WRITTEN} from {table.layer}/{table.path.name}: {table.kind}. #}}\n{config}\n{query}\n"

    def described(self, table: LayerTable, notes: list[str]) -> dict[str, object]:
        """Return what the project says of a model: its tests are its keys, and what it expects without filtering."""
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
            arguments = {"columns": [quote(each, self._dialect) for each in keys]}
            yield {"unique_together": {"name": _slug(name, "has one row of each key"), "arguments": arguments}}

    def _expectation_tests(self, table: LayerTable, name: str, notes: list[str]) -> Iterator[dict[str, object]]:
        for number, each in enumerate(table.expectations, start=1):
            if each.otherwise not in _SEVERITY:
                continue
            left_out = [column for column in table.except_columns if re.search(rf"\b{re.escape(column)}\b", each.that)]
            if left_out:
                notes.append(
                    f'{table.table}: "{each.sentence}" is not tested, because {", ".join(left_out)} is left out of the table'
                )
                continue
            condition = condition_sql(table, each.that, line=each.line, dialect=self._dialect)
            yield {
                "holds": {
                    "name": _slug(name, str(number), each.sentence),
                    "description": escape_jinja(each.sentence),
                    "arguments": {"condition": condition},
                    "config": {"severity": _SEVERITY[each.otherwise]},
                }
            }

    def _reference(self, name: TableName) -> str:
        if name in self._sources:
            return f"{{{{ source('{name.flat_namespace}', '{name.name}') }}}}"
        return f"{{{{ ref('{self.names[name]}') }}}}"


def _columns(lineage: Lineage, table: LayerTable) -> tuple[str, ...] | None:
    """Return the table's own columns, None where only an engine can tell."""
    found = lineage.table(table.table)
    if not found or not found.whole:
        return None
    return tuple(each.name for each in found.columns if each.name not in table.added_columns)


def _model_names(models: Sequence[LayerTable]) -> dict[TableName, str]:
    """Return a name for each model: the table's, with its namespace where another table has it too."""
    short = [each.table.name for each in models]
    return {each.table: each.table.name if short.count(each.table.name) == 1 else each.table.flat for each in models}


def _flat(namespace: str) -> str:
    """Return a namespace as one word, which dbt wants in names."""
    return TableName(namespace, "").flat_namespace


def _slug(*parts: str) -> str:
    return "_".join(re.sub(r"\W+", "_", each).strip("_") for each in parts)


def _yaml(value: object) -> str:
    return f"# {_WRITTEN}\n" + yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=120)


def _is_ours(path: Path) -> bool:
    return path.is_file() and _WRITTEN in path.read_text(encoding="utf-8").split("\n", 1)[0]
