"""The events that both sides land: the same for everyone, because they come from a seed.

What repeats in life repeats here (merchants, cards, countries); ids, amounts, scores and times are new in every event.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from random import Random

_START = datetime(2026, 3, 1, 8, tzinfo=timezone.utc)
_START_MS = int(_START.timestamp() * 1000)
_BLOCK = 1_000
_CHARGE_EVERY_MS = 10
_SHOPS = 400
_CARDS = 2_000

_CHARGE = (
    '{"event_id":"evt_%s","event_type":"%s","provider":"%s","charge_id":"ch_%s","customer_id":"cus_%s","amount":%d.%02d,'
    '"currency":"%s","status":"%s","failure_code":%s,"failure_message":%s,%s,%s,"description":"Payment of order %s",'
    '"metadata":{"order_id":"ord_%s","user_email":"user%s@example.com","subscription_id":%s},"risk_score":%d,'
    '"risk_level":"%s","created_at":"%s.%03dZ","updated_at":"%s.%03dZ"}'
)
_CARD = (
    '"payment_method_id":"pm_%s","payment_method_type":"card","card_brand":"%s","card_last4":"%04d","card_exp_month":%d,'
    '"card_exp_year":%d,"card_country":"%s","billing_country":"%s","billing_postal_code":"%05d"'
)
_PROVIDERS = ("stripe", "braintree", "adyen", "worldpay", "square")
_CURRENCIES = ("USD", "USD", "EUR", "GBP", "CAD")
_COUNTRIES = ("US", "US", "DE", "GB", "CA", "FR", "AU", "JP")
_PLACES = ("Northern", "Old Town", "Harbour", "Garden")
_GOODS = ("Books", "Coffee", "Cycles")
_FAILURES = (
    ("insufficient_funds", "The card has insufficient funds to complete the purchase."),
    ("card_declined", "The card was declined by its issuer."),
    ("expired_card", "The card has expired."),
)
_RISKS = ("low", "low", "medium", "high")


def charges(count: int, *, seed: int, bad_every: int = 0) -> Iterator[bytes]:
    """Yield JSON events of 27 fields and about 850 bytes. With `bad_every`, one of so many is one that can't be landed."""
    random = Random(seed)
    shops, cards = _shops(random), _cards(random)
    for first in range(0, count, _BLOCK):
        ids = random.randbytes(_BLOCK * 40).hex()
        for index in range(first, min(first + _BLOCK, count)):
            value = _charge(random, ids, index, shops=shops, cards=cards).encode()
            yield _spoil(value, index // bad_every) if bad_every and index % bad_every == bad_every // 2 else value


def lineage_events(count: int, *, seed: int) -> Iterator[bytes]:
    """Yield Avro messages with a uuid and a time, one millisecond apart."""
    random = Random(seed)
    for first in range(0, count, _BLOCK):
        ids = random.randbytes(_BLOCK * 16).hex()
        for index in range(min(_BLOCK, count - first)):
            at = ids[index * 32 : index * 32 + 32]
            text = f"{at[:8]}-{at[8:12]}-{at[12:16]}-{at[16:20]}-{at[20:]}"
            yield b"\x48" + text.encode() + _long(_START_MS + first + index)


def _charge(random: Random, ids: str, index: int, *, shops: list[str], cards: list[str]) -> str:
    at = index % _BLOCK * 80
    draw = random.getrandbits(60)
    shop, card = shops[draw % _SHOPS], cards[(draw >> 10) % _CARDS]
    failed = (draw >> 22) % 8 == 0
    code, message = _FAILURES[draw % 3] if failed else ("", "")
    created = index * _CHARGE_EVERY_MS + (draw >> 26) % _CHARGE_EVERY_MS
    updated = created + (draw >> 30) % 4_000
    score = (draw >> 42) % 100
    return _CHARGE % (
        ids[at : at + 24],
        "charge.failed" if failed else "charge.succeeded",
        _PROVIDERS[draw % 5],
        ids[at + 24 : at + 48],
        ids[at + 48 : at + 62],
        (draw >> 34) % 2_000,
        draw % 100,
        _CURRENCIES[(draw >> 4) % 5],
        "failed" if failed else "succeeded",
        f'"{code}"' if failed else "null",
        f'"{message}"' if failed else "null",
        card,
        shop,
        ids[at + 62 : at + 70],
        ids[at + 62 : at + 70],
        ids[at + 70 : at + 76],
        f'"sub_{ids[at + 64 : at + 80]}"' if draw & 1 else "null",
        score,
        _RISKS[score // 25],
        _second(created // 1000),
        created % 1000,
        _second(updated // 1000),
        updated % 1000,
    )


def _second(since_start: int, *, cache: dict[int, str] = {}) -> str:  # noqa: B006 - the cache is what makes it fast
    text = cache.get(since_start)
    if text is None:
        if len(cache) > 10_000:
            cache.clear()
        text = cache[since_start] = (_START + timedelta(seconds=since_start)).strftime("%Y-%m-%dT%H:%M:%S")
    return text


def _shops(random: Random) -> list[str]:
    names = [f"{random.choice(_PLACES)} {random.choice(_GOODS)} {number}" for number in range(_SHOPS)]
    return [f'"merchant_id":"merch_{random.getrandbits(64):016x}","merchant_name":"{name}"' for name in names]


def _cards(random: Random) -> list[str]:
    return [
        _CARD
        % (
            f"{random.getrandbits(96):024x}",
            random.choice(("visa", "mastercard", "amex", "discover")),
            random.randrange(10_000),
            random.randint(1, 12),
            random.randint(2026, 2032),
            random.choice(_COUNTRIES),
            random.choice(_COUNTRIES),
            random.randrange(100_000),
        )
        for _ in range(_CARDS)
    ]


def _spoil(value: bytes, kind: int) -> bytes:
    """Return an event that is wrong in one of five ways."""
    if kind % 5 == 0:
        return value[: len(value) * 2 // 3]
    wrong, right = (
        (b'"card_exp_month":"May"', b'"card_exp_month":'),
        (b'"risk_score":99999999999', b'"risk_score":'),
        (b'"risk_level":"\xff\xfe"', b'"risk_level":'),
        (b'"created_at":"2026-13-45T99:00:00Z"', b'"created_at":'),
    )[kind % 5 - 1]
    start = value.index(right)
    return value[:start] + wrong + value[value.index(b",", start) :]


def _long(number: int) -> bytes:
    """Return Avro's encoding of a whole number that is not negative."""
    rest, out = number << 1, bytearray()
    while rest > 0x7F:
        out.append((rest & 0x7F) | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)
