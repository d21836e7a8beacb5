"""Change events of a real Debezium on storefront's products, while columns were added, widened and replaced."""

from __future__ import annotations

import base64
import json
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.errors import NotFoundError
from headrace.kafka.schemas import Registry
from headrace.landing.decode import GrowthError
from headrace.landing.decode.changes import ChangesDecoder
from headrace.spec import load_pipeline
from headrace.spec.model.types import Column
from tests.landing.streams import rows_of, schema_of

REAL = json.loads(Path(__file__).with_name("real_changes.json").read_text(encoding="utf-8"))
MESSAGES: list[bytes | None] = [base64.b64decode(message) for message in REAL["messages"]]


class Schemas(Registry):
    def schema(self, schema_id: int) -> str:
        if f"{schema_id}" not in REAL["schemas"]:
            raise NotFoundError(f"the registry has no schema {schema_id}")
        return json.dumps(REAL["schemas"][f"{schema_id}"])


def decoder(tmp_path: Path, columns: tuple[Column, ...] | None = None) -> ChangesDecoder:
    """Return a decoder for a table with these columns, or with those of storefront's own file."""
    stream = load_pipeline("storefront", environ={}, folder=tmp_path).stream("products")
    schema = schema_of(stream if columns is None else type(stream)(**{**vars(stream), "columns": columns}))
    return ChangesDecoder(schema=schema, registry=Schemas("http://registry"))


def test_what_debezium_wrote_comes_out_as_it_went_in(tmp_path: Path) -> None:
    with pytest.raises(GrowthError) as growth:
        decoder(tmp_path).decode(MESSAGES)
    decoded = decoder(tmp_path, growth.value.columns[0]).decode(MESSAGES)
    rows = rows_of(decoded)
    assert [reason.split(",")[0] for reason in decoded.bad.values()] == ["schema does not fit: of schema 13"]
    assert [row["op"] for row in rows] == ["c", "u", "c"]
    first, last = rows[0]["after"], rows[-1]["after"]
    assert (first["price"], first["tax_rate"]) == (Decimal("1234567890.12"), {"scale": 6, "value": b"\x02\xe6\x31"})
    assert (first["related_ids"], first["thumbnail"], first["attributes"]) == ([1, None, 3], b"\x00\xff\x01", '{"a": [1, 2]}')
    assert (first["released_on"], first["created_at"]) == (20_508, "2026-11-16T17:17:42.227262Z")
    assert (first["stock"], rows[1]["before"]["stock"], rows[1]["after"]["stock"]) == (5, 5, 6)
    assert (first["colour"], last["colour"], last["stock"]) == (None, "red", 5_000_000_000)
    assert rows[0]["source"]["lsn"] < rows[-1]["source"]["lsn"]
