"""What HubSpot sends: lists of events of contacts and companies."""

from __future__ import annotations

from datetime import datetime

from .playing import Memory
from .world import PEOPLE_SLOTS, Json, Person, World, created, hubspot_person

PORTAL, APP = 62515, 54321
STAGES = ("subscriber", "lead", "opportunity", "customer")
COMPANIES = ("Harbour Books", "Old Town Cycles", "Northern Audio", "Garden Café", "Juniper Outdoors", "Lantern Œuvres")


def contact_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of contacts: a list of one or two events of one of them."""
    if number % 4 in PEOPLE_SLOTS:
        person = world.person(hubspot_person(created(number)))
        events = [
            _event(world, f"contact/{number}/0", "contact.creation", person.number, moment, properties=_contact(world, person))
        ]
    else:
        person = world.person(hubspot_person(world.pick("hubspot changed", number, of=max(1, created(number)))))
        events = []
    for at in range(1, 1 + world.pick("changes", number, of=2) + (not events)):
        name, value = _change(world, person, f"{number}/{at}")
        key = f"contact/{number}/{at}"
        events.append(_event(world, key, "contact.propertyChange", person.number, moment, name=name, value=value))
    return {"headers": {"user-agent": "HubSpot Webhooks"}, "body": events}


def company_delivery(world: World, number: int, moment: datetime, memory: Memory) -> Json:
    """Return delivery `number` of companies: one that is new, or whose name is written in another way."""
    index = number // 2
    name = f"{COMPANIES[world.pick('company', index, of=len(COMPANIES))]} {index}"
    key = f"company/{number}"
    if number % 2 == 0:
        properties: Json = {"name": name, "domain": f"company-{index}.example", "city": None}
        event = _event(world, key, "company.creation", index, moment, properties=properties)
    else:
        event = _event(world, key, "company.propertyChange", index, moment, name="name", value=name.upper())
    return {"headers": {"user-agent": "HubSpot Webhooks"}, "body": [event]}


def again(delivery: Json) -> Json:
    """Return what HubSpot sends when it got no answer: the same events, as another attempt."""
    events = delivery["body"]
    assert isinstance(events, list)
    return {**delivery, "body": [{**event, "attemptNumber": event["attemptNumber"] + 1} for event in events]}


def _event(
    world: World,
    key: str,
    kind: str,
    subject: int,
    moment: datetime,
    *,
    properties: Json | None = None,
    name: str | None = None,
    value: str | None = None,
) -> Json:
    event: Json = {
        "eventId": world.random("hubspot", key).getrandbits(48),
        "subscriptionId": 1000 + len(kind),
        "portalId": PORTAL,
        "appId": APP,
        "occurredAt": int(moment.timestamp() * 1000),
        "subscriptionType": kind,
        "attemptNumber": 0,
        "objectId": 900_000 + subject,
        "changeSource": "CRM" if name else "FORM",
    }
    if name is not None:
        return {**event, "propertyName": name, "propertyValue": value}
    return {**event, "changeFlag": "CREATED", "properties": properties}


def _contact(world: World, person: Person) -> Json:
    return {
        "email": world.spell_email(person, by="hubspot"),
        "firstname": person.given,
        "lastname": person.family,
        "phone": world.spell_phone(person, by="hubspot"),
        "company": COMPANIES[world.pick("works", person.number, of=len(COMPANIES))],
        "lifecyclestage": "lead",
    }


def _change(world: World, person: Person, key: str) -> tuple[str, str | None]:
    if world.pick("what", key, of=3) == 0:
        return "phone", world.spell_phone(person, by=f"hubspot {key}")
    return "lifecyclestage", STAGES[world.pick("stage", key, of=len(STAGES))]
