"""Where Spark runs, and how its executors come to Headrace's code and to the packages that it needs.

On this machine they are there already. A cluster's executors get Headrace itself as an archive, which Spark hands out and
unpacks before the first task; packages come with the interpreter: the same path as here (a cluster on this machine, an image
that has them), or a packed environment (`spark.python_archive`), which Spark hands out in the same way.
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import headrace
from headrace.settings import Settings

_TASK_FAILURES = 4
_LOOPBACK = "127.0.0.1"
_CODE, _ENVIRONMENT = "headrace_code", "headrace_environment"
_BEGINNING = (1980, 1, 1, 0, 0, 0)


def with_retries(master: str) -> str:
    """Return a master's address; a local one is told to try a task again, which it would not by itself."""
    if master.startswith("local[") and "," not in master:
        return f"{master.removesuffix(']')},{_TASK_FAILURES}]"
    return f"local[1,{_TASK_FAILURES}]" if master == "local" else master


def on_this_machine() -> Mapping[str, str]:
    """Return Spark's configuration for a local master."""
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.sql.shuffle.partitions": "2",
        # What is shuffled stays on this machine, mostly in memory: to compress it and add it up only takes CPU.
        "spark.shuffle.compress": "false",
        "spark.shuffle.checksum.enabled": "false",
    }


def on_a_cluster(settings: Settings) -> Mapping[str, str]:
    """Return Spark's configuration for a cluster: where the driver is found, and what executors are given."""
    archives = [f"{pack_code(settings.home / 'spark')}#{_CODE}"]
    found = {"spark.executorEnv.PYTHONPATH": _CODE}
    if settings.spark_python_archive:
        archives.append(f"{settings.spark_python_archive}#{_ENVIRONMENT}")
    python = f"./{_ENVIRONMENT}/bin/python" if settings.spark_python_archive else sys.executable
    found["spark.pyspark.python"] = settings.spark_python or python
    found["spark.pyspark.driver.python"] = sys.executable
    found["spark.archives"] = ",".join(archives)
    if settings.spark_executor_memory:
        found["spark.executor.memory"] = settings.spark_executor_memory
    if settings.spark_executor_cores:
        found["spark.executor.cores"] = str(settings.spark_executor_cores)
    if settings.spark_driver_host:
        found["spark.driver.host"] = settings.spark_driver_host
        found["spark.driver.bindAddress"] = "0.0.0.0"
    elif _is_this_machine(settings.spark_master):
        found["spark.driver.host"] = found["spark.driver.bindAddress"] = _LOOPBACK
    return found


def pack_code(folder: Path) -> Path:
    """Return an archive of the package headrace as it is now. Its name says what is in it, so it is made once."""
    package = Path(headrace.__file__).parent
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(package)} {path.stat().st_size}\n".encode() + path.read_bytes())
    made = folder / f"headrace-{digest.hexdigest()[:16]}.zip"
    if made.exists():
        return made
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=folder, suffix=".zip")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(str(Path("headrace") / path.relative_to(package)), date_time=_BEGINNING)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    os.replace(fresh, made)
    return made


def _is_this_machine(master: str) -> bool:
    """Return whether all of a standalone cluster's masters have an address that only this machine knows."""
    if not master.startswith("spark://"):
        return False
    hosts = [urlsplit(f"spark://{each}").hostname or "" for each in master.removeprefix("spark://").split(",")]
    return all(host == "localhost" or _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
