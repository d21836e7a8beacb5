"""Count the fields in `_extra` of a raw table's current rows."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.table import Table

from headrace.iceberg.files.file_counts import FileCounts
from headrace.iceberg.ledgers.landing import read_ledger
from headrace.iceberg.ledgers.replay import read_replay
from headrace.landing.decode.extra import names_in_extra
from headrace.spec.model.columns import EXTRA

_COUNTS = FileCounts(EXTRA.name, names_in_extra)


def count_extras(table: Table | None) -> Mapping[str, int]:
    """Return how many rows hold each field that the schema does not name, by the field's path.

    Landing counts them while it writes. They are counted again only if rows were erased or replaced since.
    """
    if table is None or EXTRA.name not in table.schema().column_names:
        return {}
    ledger = read_ledger(table)
    if not ledger.erasures and not read_replay(table).count:
        return ledger.extras
    return _COUNTS.total(table)
