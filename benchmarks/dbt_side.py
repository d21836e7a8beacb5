"""dbt-duckdb as the other side: the pipeline's tables, rebuilt in full from the same raw tables."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.meter import measure
from benchmarks.payments_lake import PaymentsLake
from headrace.export.dbt_project import export_project
from tests.export.tools import install_tool

_DBT_LOCK = Path(__file__).parents[1] / "tests" / "export" / "dbt.lock"


@dataclass(frozen=True)
class DbtSide:
    """A dbt project that `headrace export dbt` wrote, and the environment that runs it."""

    environment: Path
    project: Path

    @classmethod
    def export(cls, payments: PaymentsLake, folder: Path) -> DbtSide:
        environment = install_tool("dbt", lock=_DBT_LOCK, cost="1 minute")
        export_project(payments.settings, payments.pipeline, folder=folder, dialect="duckdb")
        return cls(environment, folder)

    def rebuild(self) -> float:
        """Return the seconds that dbt takes to build all models, from its start to its end; its tests are left out."""
        ours = {name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "DBT_", "PYTHON"))}
        command = [str(self.environment / "bin/dbt"), "--no-use-colors", "--no-version-check", "run", "--full-refresh"]
        with measure(os.getpid()) as reading:
            subprocess.run(command, cwd=self.project, env=ours, check=True, capture_output=True)
        return reading.seconds
