"""The webhooks of Shopify, Stripe and HubSpot: what each is, which id it has, and which stream it belongs to."""

from __future__ import annotations

from headrace import Delivery, Message, Payload, webhook

SHOPIFY = {
    **{
        f"orders/{what}": "shopify_orders"
        for what in ("create", "updated", "paid", "partially_fulfilled", "fulfilled", "cancelled", "delete")
    },
    **{f"customers/{what}": "shopify_customers" for what in ("create", "update", "enable", "disable", "delete")},
}
"""Shopify's topics whose payload is the order or the customer itself; `customers/redact` and the like have one of their own."""
STRIPE = {"charge": "stripe_charges", "customer": "stripe_customers"}
"""Streams by the kind of object that an event is about: `charge.dispute.created` is about a dispute."""
HUBSPOT = {
    "contact": "hubspot_contacts",
    "company": "hubspot_companies",
    "0-1": "hubspot_contacts",
    "0-2": "hubspot_companies",
}
"""Streams by what an event is about: the first word of `contact.propertyChange`, or the `objectTypeId` of `object.creation`."""
HUBSPOT_COLUMNS = {
    "objectId": "id",
    "propertyName": "property_name",
    "propertyValue": "property_value",
    "changeSource": "change_source",
    "portalId": "portal_id",
    "appId": "app_id",
    "subscriptionId": "subscription_id",
    "attemptNumber": "attempt_number",
    "occurredAt": "occurred_at",
}


@webhook(
    "/webhooks/shopify",
    signatures=["shopify"],
    secret="SHOPIFY_WEBHOOK_SECRET",
    streams=["shopify_orders", "shopify_customers"],
    other="shopify_other",
)
def shopify(payload: Payload, delivery: Delivery) -> Message:
    """Takes a webhook of Shopify: what it is, and its id, stand in headers."""
    topic = delivery.headers.get("x-shopify-topic", "")
    identity = delivery.headers.get("x-shopify-webhook-id") or payload.digest
    return Message(topic, identity, SHOPIFY.get(topic), payload.fields, key=payload.text("id"))


@webhook(
    "/webhooks/stripe",
    signatures=["stripe"],
    secret="STRIPE_WEBHOOK_SECRET",
    streams=["stripe_charges", "stripe_customers"],
    other="stripe_other",
)
def stripe(payload: Payload, delivery: Delivery) -> Message:
    """Takes an event of Stripe: the object that it is about becomes the row."""
    about = payload.inner("data").inner("object")
    fields = {**about.fields, "event_created": payload.fields.get("created")}
    kind, identity = payload.text("type") or "", payload.text("id") or payload.digest
    return Message(kind, identity, STRIPE.get(about.text("object") or ""), fields, key=about.text("id"))


@webhook(
    "/webhooks/hubspot",
    signatures=["hubspot-v3", "hubspot-v2", "hubspot-v1"],
    secret="HUBSPOT_WEBHOOK_SECRET",
    streams=["hubspot_contacts", "hubspot_companies"],
    other="hubspot_other",
    batches=True,
)
def hubspot(payload: Payload, delivery: Delivery) -> Message:
    """Takes one event of HubSpot, which sends them in lists."""
    kind, identity = payload.text("subscriptionType") or "", payload.text("eventId") or payload.digest
    subject = payload.text("objectTypeId") if kind.startswith("object.") else kind.partition(".")[0]
    named = {HUBSPOT_COLUMNS[name]: value for name, value in payload.fields.items() if name in HUBSPOT_COLUMNS}
    rest = {name: value for name, value in payload.fields.items() if name not in HUBSPOT_COLUMNS}
    return Message(kind, identity, HUBSPOT.get(subject or ""), {**rest, **named}, key=payload.text("objectId"))
