"""Generate the profile and the README of a dbt project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headrace.export.dbt_models import Dialect

PLUGIN = "headrace_lake"
DATABASE = "headrace_dbt.duckdb"
PACKAGES = {"duckdb": "'dbt-core~=1.11.0' dbt-duckdb", "spark": "'dbt-core~=1.11.0' 'dbt-spark[session]'"}
_CATALOG = "spark.sql.catalog.headrace"

_SPARK = """\
export HEADRACE_WAREHOUSE="$(cd {home} && pwd)/warehouse"     # Spark writes the path into the tables, so it can't be relative
export PYSPARK_SUBMIT_ARGS="--jars ICEBERG_RUNTIME.jar,SQLITE_JDBC.jar pyspark-shell"     # both are in Headrace's cache
"""
_TRANSLATED = """
sqlglot translates the queries from Spark SQL. Values are the same, but types may differ: a sum of decimals has a higher
precision, an average is a double, and a timestamp that is cast to a string includes its time zone.
"""


def profile_of(dialect: Dialect, *, home: str, tables: Sequence[str], hidden: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """Return the profile. Environment variables override what depends on the machine. `home` is a relative path.

    `hidden` maps tables to the columns that models don't read.
    """
    if dialect == "duckdb":
        lake = {"home": home, "tables": list(tables), "hidden": {name: list(columns) for name, columns in hidden.items()}}
        return {"target": "duckdb", "outputs": {"duckdb": _duckdb(lake)}}
    return {"target": "session", "outputs": {"session": _session(home), "thrift": _thrift()}}


def readme_of(name: str, dialect: Dialect, *, home: str) -> str:
    where = f"`{DATABASE}`" if dialect == "duckdb" else "schemas that start with `dbt_`, next to Headrace's own"
    return (
        f"# {name}, for dbt\n\nWritten by `headrace export dbt {name}`: export it again after a change.\n\n"
        f"```bash\npip install {PACKAGES[dialect]}\n{_SPARK.format(home=home) if dialect == 'spark' else ''}"
        "dbt build\n```\n\n"
        + ("A Spark with a Thrift server: `DBT_SPARK_HOST=… dbt build --target thrift`.\n\n" if dialect == "spark" else "")
        + "The sources are the tables that Headrace lands or builds in Python, at their snapshots when dbt starts.\n"
        f"The models are the pipeline's SQL tables, rebuilt from all rows into {where}: dbt can't read\n"
        "the rows that changed since its last run, and an incremental filter on a column would miss late rows.\n\n"
        "Rows that fail `drop` and `quarantine` expectations are left out, as in Headrace. `warn` expectations are tests\n"
        "with severity `warn`, and `fail` expectations tests with severity `error`. Both test the rows of the finished table.\n"
        + (_TRANSLATED if dialect == "duckdb" else "")
    )


def _duckdb(lake: Mapping[str, object]) -> dict[str, object]:
    folder = "{{ env_var('DBT_PROJECT_DIR', '.') }}"
    return {
        "type": "duckdb",
        "path": f"{folder}/{DATABASE}",
        "threads": 2,
        "settings": {"TimeZone": "UTC"},
        "module_paths": [folder],
        "plugins": [{"module": PLUGIN, "config": dict(lake)}],
    }


def _session(home: str) -> dict[str, object]:
    return {
        "type": "spark",
        "method": "session",
        "host": "NA",
        "schema": "{{ env_var('DBT_SPARK_SCHEMA', 'dbt') }}",
        "threads": 1,
        "server_side_parameters": {
            "spark.sql.defaultCatalog": "headrace",
            "spark.sql.session.timeZone": "UTC",
            _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
            f"{_CATALOG}.type": "jdbc",
            f"{_CATALOG}.uri": f"{{{{ env_var('HEADRACE_SPARK_CATALOG_URI', 'jdbc:sqlite:{home}/catalog.db') }}}}",
            f"{_CATALOG}.jdbc.schema-version": "V1",
            f"{_CATALOG}.warehouse": "{{ env_var('HEADRACE_WAREHOUSE') }}",
            f"{_CATALOG}.cache-enabled": "false",
        },
    }


def _thrift() -> dict[str, object]:
    return {
        "type": "spark",
        "method": "thrift",
        "host": "{{ env_var('DBT_SPARK_HOST') }}",
        "port": "{{ env_var('DBT_SPARK_PORT', '10000') | int }}",
        "user": "{{ env_var('DBT_SPARK_USER', '') }}",
        "schema": "{{ env_var('DBT_SPARK_SCHEMA', 'dbt') }}",
        "threads": 1,
    }
