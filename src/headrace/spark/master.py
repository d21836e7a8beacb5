"""Configure where Spark runs, and how its executors get Headrace's code and packages.

A local master has them already. Executors of a cluster get Headrace as an archive, which Spark distributes and unpacks before
the first task. Packages come with the interpreter: from the same path as here (a cluster on this machine, or an image with the
packages), or from a packed environment (`spark.python_archive`), which Spark distributes in the same way.
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

from headrace.settings import Settings

_TASK_FAILURES = 4
_LOOPBACK = "127.0.0.1"
_CODE, _ENVIRONMENT = "headrace_code", "headrace_environment"
_BEGINNING = (1980, 1, 1, 0, 0, 0)


def with_retries(master: str) -> str:
    """Return the master's address with task retries for a local master, which has none by default."""
    if master.startswith("local[") and "," not in master:
        return f"{master.removesuffix(']')},{_TASK_FAILURES}]"
    return f"local[1,{_TASK_FAILURES}]" if master == "local" else master


def on_this_machine() -> Mapping[str, str]:
    """Return Spark's configuration for a local master."""
    return {
        "spark.driver.host": _LOOPBACK,
        "spark.driver.bindAddress": _LOOPBACK,
        "spark.sql.shuffle.partitions": "2",
        # Shuffle data stays on this machine, mostly in memory: compression and checksums would only cost CPU.
        "spark.shuffle.compress": "false",
        "spark.shuffle.checksum.enabled": "false",
    }


def on_a_cluster(settings: Settings) -> Mapping[str, str]:
    """Return Spark's configuration for a cluster: the driver's address, and the executors' code and resources."""
    archives = [f"{pack_code(settings.home / 'spark')}#{_CODE}"]
    conf = {"spark.executorEnv.PYTHONPATH": _CODE}
    if settings.spark_python_archive:
        archives.append(f"{settings.spark_python_archive}#{_ENVIRONMENT}")
    python = f"./{_ENVIRONMENT}/bin/python" if settings.spark_python_archive else sys.executable
    conf["spark.pyspark.python"] = settings.spark_python or python
    conf["spark.pyspark.driver.python"] = sys.executable
    conf["spark.archives"] = ",".join(archives)
    if settings.spark_executor_memory:
        conf["spark.executor.memory"] = settings.spark_executor_memory
    if settings.spark_executor_cores:
        conf["spark.executor.cores"] = str(settings.spark_executor_cores)
    if settings.spark_driver_host:
        conf["spark.driver.host"] = settings.spark_driver_host
        conf["spark.driver.bindAddress"] = "0.0.0.0"
    elif _is_this_machine(settings.spark_master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = _LOOPBACK
    return conf


def pack_code(folder: Path) -> Path:
    """Return an archive of the current package headrace. Its name has a digest of its content, so it is created once."""
    package = Path(__file__).parents[1]
    files = sorted(path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    digest = hashlib.sha256()
    for path in files:
        digest.update(f"{path.relative_to(package)} {path.stat().st_size}\n".encode() + path.read_bytes())
    archive_path = folder / f"headrace-{digest.hexdigest()[:16]}.zip"
    if archive_path.exists():
        return archive_path
    folder.mkdir(parents=True, exist_ok=True)
    descriptor, fresh = tempfile.mkstemp(dir=folder, suffix=".zip")
    with os.fdopen(descriptor, "wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in files:
            entry = zipfile.ZipInfo(str(Path("headrace") / path.relative_to(package)), date_time=_BEGINNING)
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    os.replace(fresh, archive_path)
    return archive_path


def _is_this_machine(master: str) -> bool:
    """Return whether all masters of a standalone cluster have loopback addresses."""
    if not master.startswith("spark://"):
        return False
    addresses = master.removeprefix("spark://").split(",")
    hosts = [urlsplit(f"spark://{address}").hostname or "" for address in addresses]
    return all(host == "localhost" or _is_loopback(host) for host in hosts)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
