"""The webhooks of Shopify, Stripe and HubSpot: what each is, which id it has, and which stream it belongs to."""

from __future__ import annotations

import os

from headrace import Delivery, Message, Payload, webhook

SHOPIFY = {
    **{
        f"orders/{what}": "shopify_orders"
        for what in ("create", "updated", "paid", "partially_fulfilled", "fulfilled", "cancelled", "delete")
    },
    **{f"customers/{what}": "shopify_customers" for what in ("create", "update", "enable", "disable", "delete")},
}
"""Shopify's topics whose payload is the order or the customer itself; `customers/redact` and the like have one of their own."""
REDACTION = "customers/redact"
REDACTION_FIELDS = {"shop_id", "shop_domain", "customer", "orders_to_redact"}
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
    """Take a webhook of Shopify: what it is, and its id, stand in headers."""
    topic = delivery.headers.get("x-shopify-topic", "")
    identity = delivery.headers.get("x-shopify-webhook-id") or payload.digest
    if topic == REDACTION:
        if not is_redaction(payload, delivery.headers.get("x-shopify-shop-domain", "")):
            return Message(f"{topic} (unconfirmed)", identity, None, payload.fields)
        identity = payload.digest  # a repeat is recognised by what the signature covers
    return Message(topic, identity, SHOPIFY.get(topic), payload.fields, key=payload.text("id"))


def is_redaction(payload: Payload, shop: str) -> bool:
    """Return whether a payload asks for a customer to be erased, and comes from this shop.

    Shopify signs the body alone. Whoever replays another signed body can name any topic in its header, so the body itself has
    to be a redaction: exactly its four fields, with the domain of the shop that the headers name, which has to be one of
    SHOPIFY_SHOP_DOMAINS, where that is set.
    """
    domain = (payload.text("shop_domain") or "").lower()
    ours = {domain.strip().lower() for domain in os.environ.get("SHOPIFY_SHOP_DOMAINS", "").split(",")} - {""}
    return (
        payload.fields.keys() == REDACTION_FIELDS
        and payload.inner("customer").text("id") is not None
        and (payload.text("orders_to_redact") or "").startswith("[")
        and domain != ""
        and domain == shop.strip().lower()
        and (not ours or domain in ours)
    )


@webhook(
    "/webhooks/stripe",
    signatures=["stripe"],
    secret="STRIPE_WEBHOOK_SECRET",
    streams=["stripe_charges", "stripe_customers"],
    other="stripe_other",
)
def stripe(payload: Payload, delivery: Delivery) -> Message:
    """Take an event of Stripe: the object that it is about becomes the row."""
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
    """Take one event of HubSpot, which sends them in lists."""
    kind, identity = payload.text("subscriptionType") or "", payload.text("eventId") or payload.digest
    subject = payload.text("objectTypeId") if kind.startswith("object.") else kind.partition(".")[0]
    named = {HUBSPOT_COLUMNS[name]: value for name, value in payload.fields.items() if name in HUBSPOT_COLUMNS}
    rest = {name: value for name, value in payload.fields.items() if name not in HUBSPOT_COLUMNS}
    return Message(kind, identity, HUBSPOT.get(subject or ""), {**rest, **named}, key=payload.text("objectId"))
