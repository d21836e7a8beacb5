"""Log lines for operators: one for each batch and build, and the traceback of every unexpected error.

Each module logs to `logging.getLogger(__name__)`; `set_up_logging` says where that goes. What people see on the terminal and in
the browser is no log and does not come from here.
"""

from headrace.logs.failures import BUILD, FAILURE_LOGS, LANDING, MAINTENANCE, PUBLISHING, log_failure, log_trace
from headrace.logs.fields import Field, log_fields, told_fields
from headrace.logs.setup import HEADRACE, is_logging, set_up_logging

__all__ = [
    "BUILD",
    "FAILURE_LOGS",
    "HEADRACE",
    "LANDING",
    "MAINTENANCE",
    "PUBLISHING",
    "Field",
    "is_logging",
    "log_failure",
    "log_fields",
    "log_trace",
    "set_up_logging",
    "told_fields",
]
