"""Signatures of webhooks: pure functions from a request's raw bytes, the secrets and the time to yes or a reason to say no.

A scheme signs as its provider does and checks what the provider sent. What is compared is the text of the signature as it was
sent, never what it decodes to, so that no second spelling of it passes; and it is compared with every secret, in a time that
does not depend on where the two differ. Two secrets hold at once while one is rotated.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from headrace.spec.model.pipeline import SignatureScheme

TOLERANCE_SECONDS = 300
"""How far the time that a sender signed may be from ours, before or after."""
_WHOLE = re.compile(r"[0-9]{1,15}")
_HUBSPOT_DECODED = re.compile(r"%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)", re.IGNORECASE)
"""The characters of an address that HubSpot decodes before it signs; all others stay as they are written."""
_STANDARD_PREFIX = "whsec_"


@dataclass(frozen=True)
class SignedRequest:
    """What a signature can cover. Names of `headers` are in lower case; `uri` is the public one, as the sender wrote it."""

    method: str
    uri: str
    headers: Mapping[str, str]
    body: bytes


class SignatureError(Exception):
    """Why a request is not taken for its sender's: one sentence, without anything of the secret."""


@dataclass(frozen=True)
class Scheme:
    """`header` carries the signature; `mark` is a header and the value that tells it from another scheme's of the same name.

    `check` raises a SignatureError, and `check_secret` a ValueError for a secret that can't be one.
    """

    header: str
    sign: Callable[[SignedRequest, str, datetime], dict[str, str]]
    check: Callable[[SignedRequest, Sequence[str], datetime], None]
    check_secret: Callable[[str], None] = lambda secret: None
    mark: tuple[str, str] | None = None

    def is_used(self, request: SignedRequest) -> bool:
        marked = self.mark is None or request.headers.get(self.mark[0]) == self.mark[1]
        return marked and self.header in request.headers


def check_signature(
    request: SignedRequest, schemes: Sequence[SignatureScheme], *, secrets: Sequence[str], now: datetime
) -> None:
    """Return if the request is signed by one who knows one of the secrets; else a SignatureError says why not.

    The first scheme whose header is there decides alone: a signature that fails is not tried as an older, weaker one.
    """
    for name in schemes:
        if SCHEMES[name].is_used(request):
            SCHEMES[name].check(request, secrets, now)
            return
    raise SignatureError(say_unsigned(schemes))


def is_signed(request: SignedRequest, schemes: Sequence[SignatureScheme]) -> bool:
    """Return whether the headers of a request have a signature of any of these schemes, right or wrong."""
    return any(SCHEMES[name].is_used(request) for name in schemes)


def say_unsigned(schemes: Sequence[SignatureScheme]) -> str:
    return f"it is not signed: send {' or '.join(_title(SCHEMES[name].header) for name in schemes)}"


def sign(request: SignedRequest, scheme: SignatureScheme, *, secret: str, now: datetime) -> dict[str, str]:
    """Return the headers that the sender of this scheme adds."""
    return SCHEMES[scheme].sign(request, secret, now)


def _sign_stripe(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
    moment = str(int(now.timestamp()))
    return {"stripe-signature": f"t={moment},v1={_stripe_digest(request.body, moment, secret)}"}


def _check_stripe(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
    parts = [part.partition("=") for part in request.headers["stripe-signature"].split(",")]
    moment = next((value for name, _, value in parts if name == "t"), "")
    sent = [value for name, _, value in parts if name == "v1"]
    if not _WHOLE.fullmatch(moment):
        raise SignatureError("Stripe-Signature has no time: write t=SECONDS,v1=SIGNATURE")
    if not sent:
        raise SignatureError("Stripe-Signature has no signature of the scheme v1")
    _match(sent, [_stripe_digest(request.body, moment, secret) for secret in secrets])
    _check_age(int(moment), now)


def _stripe_digest(body: bytes, moment: str, secret: str) -> str:
    return hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()


def _sign_shopify(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
    return {"x-shopify-hmac-sha256": _keyed(request.body, secret.encode())}


def _check_shopify(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
    sent = request.headers["x-shopify-hmac-sha256"]
    _match([sent], [_keyed(request.body, secret.encode()) for secret in secrets])


def _sign_hubspot_v3(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
    moment = str(int(now.timestamp() * 1000))
    signature = _keyed(_hubspot_message(request, moment), secret.encode())
    return {"x-hubspot-signature-v3": signature, "x-hubspot-request-timestamp": moment}


def _check_hubspot_v3(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
    moment = request.headers.get("x-hubspot-request-timestamp", "")
    if not _WHOLE.fullmatch(moment):
        raise SignatureError("X-HubSpot-Request-Timestamp is not a number of milliseconds")
    message = _hubspot_message(request, moment)
    _match([request.headers["x-hubspot-signature-v3"]], [_keyed(message, secret.encode()) for secret in secrets])
    _check_age(int(moment) / 1000, now)


def _hubspot_message(request: SignedRequest, moment: str) -> bytes:
    return request.method.encode() + _HUBSPOT_DECODED.sub(_decode, request.uri).encode() + request.body + moment.encode()


def _decode(match: re.Match[str]) -> str:
    return chr(int(match[0][1:], 16))


def _hubspot_plain(version: str) -> Scheme:
    """Return version 1 or 2: a plain hash that starts with the secret, without a time. They are told apart by a header."""

    def digest(request: SignedRequest, secret: str) -> str:
        covered = b"" if version == "v1" else request.method.encode() + request.uri.encode()
        return hashlib.sha256(secret.encode() + covered + request.body).hexdigest()

    def sign_plain(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
        return {"x-hubspot-signature": digest(request, secret), "x-hubspot-signature-version": version}

    def check_plain(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
        _match([request.headers["x-hubspot-signature"]], [digest(request, secret) for secret in secrets])

    return Scheme("x-hubspot-signature", sign_plain, check_plain, mark=("x-hubspot-signature-version", version))


def _sign_standard(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
    moment, identity = str(int(now.timestamp())), request.headers["webhook-id"]
    return {"webhook-timestamp": moment, "webhook-signature": f"v1,{_standard_digest(request, identity, moment, secret)}"}


def _check_standard(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
    identity, moment = request.headers.get("webhook-id", ""), request.headers.get("webhook-timestamp", "")
    if not identity:
        raise SignatureError("webhook-id is missing")
    if not _WHOLE.fullmatch(moment):
        raise SignatureError("webhook-timestamp is not a number of seconds")
    parts = [part.partition(",") for part in request.headers["webhook-signature"].split(" ")]
    sent = [value for version, _, value in parts if version == "v1"]
    if not sent:
        raise SignatureError("webhook-signature has no signature of version v1")
    _match(sent, [_standard_digest(request, identity, moment, secret) for secret in secrets])
    _check_age(int(moment), now)


def _standard_digest(request: SignedRequest, identity: str, moment: str, secret: str) -> str:
    return _keyed(f"{identity}.{moment}.".encode("latin-1") + request.body, _standard_key(secret))


def _standard_key(secret: str) -> bytes:
    """Return the key's bytes; as Standard Webhooks has it, the secret is base64, with or without `whsec_` before it."""
    return base64.b64decode(secret.removeprefix(_STANDARD_PREFIX) + "==")


def _check_standard_secret(secret: str) -> None:
    try:
        usable = bool(_standard_key(secret))
    except binascii.Error:
        usable = False
    if not usable:
        raise ValueError("it is not the base64 of a key")


def _keyed(message: bytes, key: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode("ascii")


def _match(sent: Iterable[str], expected: Sequence[str]) -> None:
    """Return if any that was sent is any that is expected. All are compared, whichever of them match."""
    matches = False
    wanted = [each.encode("ascii") for each in expected]
    for each in sent:
        found = each.encode("latin-1", errors="replace")
        for one in wanted:
            matches |= hmac.compare_digest(found, one)
    if not matches:
        raise SignatureError("the signature is not that of this body: check the secret, and that nothing changes the body")


def _check_age(moment: float, now: datetime) -> None:
    if abs(now.timestamp() - moment) > TOLERANCE_SECONDS:
        raise SignatureError(f"it was signed more than {TOLERANCE_SECONDS} seconds ago, or ahead: check the clocks")


def _title(header: str) -> str:
    return "-".join(part.capitalize() for part in header.split("-"))


SCHEMES: Mapping[str, Scheme] = {
    "stripe": Scheme("stripe-signature", _sign_stripe, _check_stripe),
    "shopify": Scheme("x-shopify-hmac-sha256", _sign_shopify, _check_shopify),
    "hubspot-v3": Scheme("x-hubspot-signature-v3", _sign_hubspot_v3, _check_hubspot_v3),
    "hubspot-v2": _hubspot_plain("v2"),
    "hubspot-v1": _hubspot_plain("v1"),
    "standard-webhooks": Scheme("webhook-signature", _sign_standard, _check_standard, _check_standard_secret),
}
