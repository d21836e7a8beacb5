"""Headrace leads streams into a lake: Kafka topics land exactly once in Apache Iceberg, and become tables of tables.

`headrace.open()` opens a project from Python. The decorators are for the Python files of a pipeline. Importing this loads
neither Spark nor Arrow nor DuckDB.
"""

from headrace.api.project import Project
from headrace.api.project import open_project as open  # noqa: A004 - `headrace.open`, as in `gzip.open`
from headrace.api.results import Rows, StreamLanding, TableBuild
from headrace.api.running import Run
from headrace.api.tables import Table
from headrace.spec.model.decorator import table
from headrace.spec.model.received import Delivery, Message, Payload, PayloadError, Received, receive, webhook
from headrace.version import __version__ as __version__

__all__ = [
    "Delivery",
    "Message",
    "Payload",
    "PayloadError",
    "Project",
    "Received",
    "Rows",
    "Run",
    "StreamLanding",
    "Table",
    "TableBuild",
    "open",
    "receive",
    "table",
    "webhook",
]
