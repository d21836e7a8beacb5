"""Shopify asks for a customer to be redacted: they leave Shopify's, Stripe's and HubSpot's tables, and nobody else does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headrace.operations.erase.forgetting import ErasureSession, begin_erasure, finish_erasure, preview_erasure
from headrace.operations.erase.identifiers import identify, text_pattern
from headrace.spec import Pipeline
from tests.pipelines.engine_build import EngineBuild
from tests.pipelines.test_payments_generators import decode
from tests.support.webhooks import commerce

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EVENT = "redaction-1"
Events = dict[str, list[dict[str, Any]]]


def sample(pipeline: Pipeline) -> Events:
    """Return what lands of the pipeline's sample, by stream; in it Shopify asks for one customer to be redacted."""
    events: Events = {}
    for stream in pipeline.streams:
        lines = (pipeline.folder / "sample" / f"{stream.name}.jsonl").read_bytes().splitlines()
        events[stream.name] = [json.loads(line) for line in lines if not decode(stream, [line]).bad]
    return events


def customer_of_both(events: Events) -> tuple[str, str]:
    """Return the id and email of somebody who is a customer at the shop and at Stripe."""
    stripe = {str(event["email"]).strip().lower() for event in events["stripe_customers"] if event.get("email")}
    both = [(str(event["id"]), event["email"].strip().lower()) for event in events["shopify_customers"] if event.get("email")]
    return next((identity, email) for identity, email in both if email in stripe)


def redaction(identity: str, email: str) -> dict[str, Any]:
    shop = {"shop_id": 1, "shop_domain": "headrace-coffee.myshopify.com"}
    body = {**shop, "customer": {"id": int(identity), "email": email, "phone": None}, "orders_to_redact": []}
    return {
        "payload": json.dumps(body),
        "_webhook_topic": "customers/redact",
        "_event_id": EVENT,
        "_loaded_at": "2026-01-01T00:02:00.000000Z",
    }


def rows_of(engine: EngineBuild, name: object) -> list[dict[str, Any]]:
    stored = engine.lake.catalog.load_table(str(name)).scan().to_arrow().to_pylist()
    return sorted(stored, key=str)


def test_redacted_customer_leaves_every_table(spark: SparkSession, tmp_path: Path) -> None:
    pipeline = commerce()
    engine = EngineBuild(tmp_path, spark, pipeline)
    events = sample(pipeline)
    identity, email = customer_of_both(events)
    forged = {"id": 1, "email": "bystander@example.com", "customer": {"id": 2, "email": "bystander@example.com"}}
    events["shopify_other"] += [redaction(identity, email), {**redaction("2", ""), "payload": json.dumps(forged)}]
    engine.land_and_build(events)
    raw = [stream.table for stream in pipeline.streams]
    before = {name: rows_of(engine, name) for name in raw}
    entities = {(row["source"], row["source_id"]): row["entity_id"] for row in rows_of(engine, "semantic.entity_index")}
    asked = {
        json.loads(event["payload"])["customer"]["id"]
        for event in events["shopify_other"]
        if "redact" in event["_webhook_topic"] and "shop_domain" in event["payload"]
    }
    gone = {entities["shopify", str(person)] for person in asked if ("shopify", str(person)) in entities}

    assert pipeline.people is not None
    session = ErasureSession(engine.lake, pipeline.people, 1e12)
    preview = preview_erasure(session, [], requested=True)
    assert len(preview.requests) == 2
    assert EVENT in {request.id for request in preview.requests}
    proof = finish_erasure(session, begin_erasure(session, preview), publish=lambda: None, report=lambda sentence: None)
    assert proof.hits == ()

    named = re.compile(text_pattern(identify(emails=[email])) or "")
    for name in (*raw, *(table.table for table in pipeline.tables)):
        assert not [row for row in rows_of(engine, name) if named.search(str(row))], name
    emptied = {str(table.table): table.removed for table in preview.affected if table.removed}
    assert {"raw.shopify_customers", "raw.stripe_customers", "raw.shopify_orders", "raw.shopify_other"} <= emptied.keys()
    for name in raw:
        after = rows_of(engine, name)
        assert len(after) == len(before[name]) - emptied.get(str(name), 0)
        assert all(row in before[name] for row in after), "what stays is as it was"
    left = {(row["source"], row["source_id"]): row["entity_id"] for row in rows_of(engine, "semantic.entity_index")}
    assert left == {record: entity for record, entity in entities.items() if entity not in gone}, "all others keep their ids"
    assert preview_erasure(session, [], requested=True).requests == ()
