"""Archives of the classes that Spark and Kafka load, for the Java processes that tests start.

`python -m tests.support.class_archive` makes them.

Spark loads 15,000 classes before it answers a query. Java maps them from an archive (class data sharing) in half the CPU time,
and tests start more than a hundred Java processes. `make test` makes an archive once for a Java and its jars. Java ignores one
that is missing or that does not fit its class path, so no test depends on it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from headrace.servers.jars import cached_jars, resolve_jars
from headrace.servers.java import choose_java, find_java_home
from headrace.servers.kafka import start_kafka, stop_kafka
from headrace.settings import load_settings
from headrace.spark.session import start_spark

FOLDER = Path(sys.prefix) / "class-archives"
"""`make clean` removes it, together with the environment that has Spark's jars."""

_JAVA_OPTIONS = "JAVA_TOOL_OPTIONS"
_CLASS_PATH, _DRIVER_OPTIONS = "spark.driver.extraClassPath", "spark.driver.defaultJavaOptions"


@dataclass(frozen=True)
class ClassArchive:
    """The classes of a program, and the jars that it has them from: the first of its class path, in order."""

    name: str
    jars: Sequence[Path]

    @cached_property
    def path(self) -> Path:
        """The archive's file. Its name stands for a Java and for the jars, each with its size and time."""
        files = [_java(), *self.jars]
        described = "\n".join(f"{file} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files)
        return FOLDER / f"{self.name}-{hashlib.sha256(described.encode()).hexdigest()[:16]}.jsa"

    @property
    def class_path(self) -> str:
        return os.pathsep.join(map(str, self.jars))

    @property
    def option(self) -> str:
        """Have Java use the archive, and not warn on standard output where it can't."""
        return f"-XX:SharedArchiveFile={self.path} -Xlog:cds=off"

    def make(self) -> None:
        """Run the program once to see which classes it loads, and write the archive."""
        FOLDER.mkdir(exist_ok=True)
        environ = {name: value for name, value in os.environ.items() if name != _JAVA_OPTIONS}
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            classes, archive = Path(folder) / "classes", Path(folder) / "archive"
            subprocess.run([sys.executable, "-m", __spec__.name, self.name, folder, str(classes)], env=environ, check=True)
            java = [str(_java()), "-Xshare:dump", "-XX:+UseSerialGC", "-Xlog:cds=off"]
            files = [f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={archive}", "-cp", self.class_path]
            subprocess.run([*java, *files], env=environ, check=True)
            archive.replace(self.path)


@cache
def _java() -> Path:
    """Return the Java of the tests. A process that has started Spark has another JAVA_HOME, which no archive is named after."""
    return choose_java(os.environ).program.resolve()


@cache
def spark_archive() -> ClassArchive:
    """Return the archive of Spark's own jars. Headrace's are in `spark.jars` alone: a test fails if one is missing there."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    return ClassArchive("spark", sorted((Path(spec.origin).parent / "jars").glob("*.jar")))


@cache
def kafka_archive() -> ClassArchive:
    return ClassArchive("kafka", cached_jars("kafka"))


def java_options() -> str:
    """Return the options of all Java processes of tests.

    They run for seconds, and Java's second compiler pays after minutes: without it a start takes two thirds of the CPU time.
    One session runs all tests of a worker, and what the first compiler makes of them does not fit into its default of 48 MB.
    The archive is Kafka's, and Spark's own option comes before it.
    """
    return f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m {kafka_archive().option}"


def spark_conf() -> Mapping[str, str]:
    """Return the configuration of a Spark that uses its archive."""
    archive = spark_archive()
    return {_CLASS_PATH: archive.class_path, _DRIVER_OPTIONS: archive.option}


def spark_environ() -> Mapping[str, str]:
    """Return the environment in which commands start Spark with its archive, if there is one."""
    folder = _conf_folder(spark_archive())
    return {"SPARK_CONF_DIR": str(folder)} if folder.exists() else {}


def _conf_folder(archive: ClassArchive) -> Path:
    return archive.path.with_suffix(".conf")


def _run_spark(folder: Path, classes: Path) -> None:
    """Start Spark, and run queries that scan, join, aggregate and sort rows."""
    settings = load_settings(flags={"spark.master": "local[2]"}, environ={}, folder=folder)
    spark = start_spark(
        settings,
        java_home=find_java_home(os.environ, cache=settings.home / "java"),
        jars=resolve_jars("spark", report=print),
        conf={**spark_conf(), _DRIVER_OPTIONS: f"-Xshare:off -XX:DumpLoadedClassList={classes}"},
    )
    rows = spark.range(100).selectExpr("id", "id % 7 AS k", "CAST(id AS STRING) AS name", "current_timestamp() AS at")
    rows.write.parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).createOrReplaceTempView("rows")
    spark.sql(
        "WITH named AS (SELECT l.k, r.name, r.at FROM rows l LEFT JOIN rows r ON l.k = r.id WHERE r.name IS NOT NULL)"
        " SELECT k, count(*) AS n, max(at) AS at, row_number() OVER (PARTITION BY k % 2 ORDER BY k) AS position"
        " FROM named GROUP BY k ORDER BY k"
    ).toArrow()
    spark.createDataFrame([(1, "a")], "id INT, name STRING").collect()
    spark.stop()


def _run_kafka(folder: Path, classes: Path) -> None:
    """Start a broker, and stop it."""
    settings = load_settings(flags={}, environ={}, folder=folder)
    os.environ[_JAVA_OPTIONS] = f"-Xshare:off -XX:DumpLoadedClassList={classes}"
    start_kafka(settings, detached=False, report=lambda sentence: None)
    stop_kafka(settings)


def make_archives() -> None:
    """Make the archives that are missing, side by side."""
    spark = spark_archive()
    missing = [archive for archive in (spark, kafka_archive()) if not archive.path.exists()]
    if missing:
        print("Archiving the classes of Spark and Kafka (once, a minute)")
    with ThreadPoolExecutor() as pool:
        list(pool.map(ClassArchive.make, missing))
    conf = _conf_folder(spark)
    conf.mkdir(exist_ok=True)
    (conf / "spark-defaults.conf").write_text("".join(f"{name} {value}\n" for name, value in spark_conf().items()))


if __name__ == "__main__":
    if sys.argv[1:]:
        name, folder, classes = sys.argv[1:]
        {"spark": _run_spark, "kafka": _run_kafka}[name](Path(folder), Path(classes))
    else:
        make_archives()
