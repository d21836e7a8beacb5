"""Shopify asks for a customer to be redacted: they leave Shopify's, Stripe's and HubSpot's tables, and nobody else does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.erasure.identifiers import identify, text_pattern
from headrace.runs.forgetting import Erasing, begin, finish, look
from tests.pipelines.engine_build import EngineBuild
from tests.pipelines.played_commerce import Messages, by_stream, played, taken
from tests.webhooks import commerce, shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENT = "redaction-1"


def customer_of_both(messages: Messages) -> tuple[str, str]:
    """Gives back the id and email of somebody who is a customer at the shop and at Stripe."""
    events = by_stream(messages)
    stripe = {str(each["email"]).strip().lower() for each in events["stripe_customers"] if each["email"]}
    both = [(str(each["id"]), each["email"]) for each in events["shopify_customers"] if each["email"]]
    return next((identity, email.strip().lower()) for identity, email in both if email.strip().lower() in stripe)


def redaction(identity: str, email: str) -> Messages:
    body = {"shop_id": 1, "customer": {"id": int(identity), "email": email, "phone": None}, "orders_to_redact": []}
    with shop() as here:
        assert here.post("shopify", body, x_shopify_topic="customers/redact", x_shopify_webhook_id=EVENT).status_code == 202
        return taken(here)


def rows_of(engine: EngineBuild, name: object) -> list[dict[str, Any]]:
    found = engine.lake.catalog.load_table(str(name)).scan().to_arrow().to_pylist()
    return sorted(found, key=str)


def test_a_redacted_customer_leaves_every_table(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = commerce()
    engine = EngineBuild(tmp_path, spark, pipeline)
    messages = played()
    identity, email = customer_of_both(messages)
    engine.land_and_build(by_stream([*messages, *redaction(identity, email)]))
    raw = [stream.table for stream in pipeline.streams]
    before = {name: rows_of(engine, name) for name in raw}
    entities = {(row["source"], row["source_id"]): row["entity_id"] for row in rows_of(engine, "semantic.entity_index")}
    gone = {entities["shopify", identity]}

    assert pipeline.people is not None
    erasing = Erasing(engine.lake, pipeline.people, 1e12)
    looked = look(erasing, [], requested=True)
    assert [each.id for each in looked.requests] == [EVENT]
    proof = finish(erasing, begin(erasing, looked), publish=lambda: None, report=lambda sentence: None)
    assert proof.hits == ()

    named = re.compile(text_pattern(identify(emails=[email])) or "")
    for name in (*raw, *(table.table for table in pipeline.tables)):
        assert not [row for row in rows_of(engine, name) if named.search(str(row))], name
    emptied = {str(each.table): each.removed for each in looked.found if each.removed}
    assert {"raw.shopify_customers", "raw.stripe_customers", "raw.shopify_orders", "raw.shopify_other"} <= emptied.keys()
    for name in raw:
        after = rows_of(engine, name)
        assert len(after) == len(before[name]) - emptied.get(str(name), 0)
        assert all(row in before[name] for row in after), "what stays is as it was"
    left = {(row["source"], row["source_id"]): row["entity_id"] for row in rows_of(engine, "semantic.entity_index")}
    assert left == {record: entity for record, entity in entities.items() if entity not in gone}, "all others keep their ids"
    assert look(erasing, [], requested=True).requests == ()
