"""The people and orders that all three providers tell of, each a function of its number.

The generators share nothing but the seed, and still agree: person `n` is the same person in the shop, at Stripe and at HubSpot,
and charge `n` pays order `n`. Not everybody is everywhere: Stripe does not know every fifth person, and HubSpot neither every
fourth nor those of its leads who have never bought.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import NamedTuple

GIVEN = ("Ada", "Björn", "Chen", "Dóra", "Émile", "Fatima", "Goran", "Hana", "İpek", "Jun", "Kofi", "Łucja", "María", "Noor")
FAMILY = ("Andersson", "Brandt", "Castillo", "Dvořák", "Eriksen", "Fournier", "García", "Hosseini", "Ito", "Jensen", "Kovács")
PLACES = (
    ("New York", "NY", "US", "10001"),
    ("Austin", "TX", "US", "78701"),
    ("Toronto", "ON", "CA", "M5V 2T6"),
    ("London", "", "GB", "EC1A 1BB"),
    ("München", "BY", "DE", "80331"),
    ("São Paulo", "SP", "BR", "01001-000"),
)
GOODS = (("Kettle", 3900), ("Mug", 1250), ("Coffee, 1 kg", 2290), ("Filter", 640), ("Scale", 5499), ("Grinder", 12900))
CURRENCIES = ("USD", "USD", "USD", "EUR", "GBP")
SHOP_PHONE = "+1 212 555 0100"
"""The shop's own number, which people at the till write down for customers who give none."""
FIRST_LEAD = 1_000_000
ORDER_SLOTS = (0, 2, 3)
"""The places of five events of orders and of charges that begin one; the other events change an earlier one."""
PEOPLE_SLOTS = (0, 1, 2)
"""The places of four events of customers and of contacts that create one."""

Json = dict[str, object]


class Person(NamedTuple):
    number: int
    given: str
    family: str
    email: str
    phone: str
    place: tuple[str, str, str, str]


@dataclass(frozen=True)
class Order:
    number: int
    buyer: Person
    is_guest: bool
    currency: str
    lines: tuple[tuple[str, int, int], ...]
    discount: int
    shipping: int
    is_paid: bool

    @property
    def subtotal(self) -> int:
        return sum(price * quantity for _, price, quantity in self.lines) - self.discount

    @property
    def tax(self) -> int:
        return self.subtotal * 8 // 100

    @property
    def total(self) -> int:
        return self.subtotal + self.tax + self.shipping

    @property
    def id(self) -> int:
        return 5_000_000_000_000 + self.number


def money(cents: int) -> str:
    """Return an amount with two decimals; it never passes through floating point."""
    return str(Decimal(cents).scaleb(-2))


@dataclass(frozen=True)
class World:
    """All that a seed makes. `problems` are the rates of what is written badly."""

    seed: int
    problems: Mapping[str, float]

    @classmethod
    def of(cls, random: Random, usual: Mapping[str, float], given: Mapping[str, float] | None) -> World:
        """Return the world of a generator that was just started: the same for all that were given the same seed."""
        return cls(random.getrandbits(64), {**usual, **(given or {})})

    def random(self, kind: str, number: object) -> Random:
        return Random(f"{self.seed}/{kind}/{number}")

    def pick(self, kind: str, number: object, *, of: int) -> int:
        return zlib.crc32(f"{self.seed}/{kind}/{number}".encode()) % of

    def strikes(self, problem: str, key: object) -> bool:
        """Return whether a problem is in what `key` names: always the same answer."""
        return self.random(problem, key).random() < self.problems[problem]

    def person(self, number: int) -> Person:
        random = self.random("person", number)
        given, family = random.choice(GIVEN), random.choice(FAMILY)
        phone = f"+1 {random.randrange(201, 990)} 555 {random.randrange(10_000):04d}"
        return Person(
            number,
            given,
            family,
            email=f"{_plain(given)}.{_plain(family)}.{number}@example.com",
            phone=SHOP_PHONE if self.pick("till", number, of=40) == 0 else phone,
            place=random.choice(PLACES),
        )

    def order(self, number: int) -> Order:
        """Return an order of someone whom the shop knows by then: a customer comes for every two events of orders."""
        random = self.random("order", number)
        lines = tuple((*random.choice(GOODS), random.randint(1, 3)) for _ in range(random.randint(1, 3)))
        return Order(
            number,
            buyer=self.person(random.randrange(max(1, created(number // 2)))),
            is_guest=random.random() < 0.15,
            currency=random.choice(CURRENCIES),
            lines=lines,
            discount=random.choice((0, 0, 0, 100, 250)),
            shipping=random.choice((0, 495, 990)),
            is_paid=random.random() < 0.93,
        )

    def spell_email(self, person: Person, *, by: str) -> str | None:
        """Return a person's address as it was typed into a system: in capitals, with a tag, with spaces, or not at all."""
        if self.strikes("no_email", f"{by}/{person.number}"):
            return None
        if not self.strikes("odd_email", f"{by}/{person.number}"):
            return person.email
        local, _, domain = person.email.partition("@")
        spellings = (person.email.upper(), f"{local}+{by}@{domain}", f" {person.email} ", person.email.title())
        return spellings[self.pick("email", f"{by}/{person.number}", of=len(spellings))]

    def spell_phone(self, person: Person, *, by: str) -> str | None:
        """Return a person's number in one of the ways that people write it."""
        if self.strikes("no_phone", f"{by}/{person.number}"):
            return None
        if not self.strikes("odd_phone", f"{by}/{person.number}"):
            return person.phone
        _, area, three, four = person.phone.split(" ")
        spellings = (
            f"({area}) {three}-{four}",
            f"{area}.{three}.{four}",
            f"001{area}{three}{four}",
            f"1-{area}-{three}-{four}",
        )
        return spellings[self.pick("phone", f"{by}/{person.number}", of=len(spellings))]


def created(events: int) -> int:
    """Return how many people were created in the first `events` events of a provider's customers or contacts."""
    return events // 4 * 3 + min(events % 4, 3)


def stripe_person(index: int) -> int:
    """Return who the customer is that Stripe created as its number `index`."""
    return index + index // 4


def hubspot_person(index: int) -> int:
    """Return who the contact is that HubSpot created as its number `index`; every sixth is a lead who has never bought."""
    return FIRST_LEAD + index if index % 6 == 5 else index + index // 3


def _plain(name: str) -> str:
    letters = str.maketrans("öóÉéİŁíář", "ooEeILiar")
    return name.translate(letters).replace("ř", "r").replace("á", "a").lower()


PROBLEMS = {"odd_email": 0.15, "no_email": 0.04, "odd_phone": 0.3, "no_phone": 0.2, "bad_time": 0.01}
"""Each problem and its rate: how many of those who can have it do."""
