"""Check webhook signatures: pure functions of a request's raw bytes, the secrets and the time.

A scheme signs and checks requests as its provider does. Signatures are compared as text, never decoded, so that only one
spelling passes. They are compared in constant time, with every secret: two secrets are valid while one is rotated.
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
"""The maximum difference between the signed time and the server's time, in both directions."""
_WHOLE = re.compile(r"[0-9]{1,15}")
_HUBSPOT_DECODED = re.compile(r"%(?:3A|2F|3F|40|21|24|27|28|29|2A|2C|3B)", re.IGNORECASE)
"""The percent-encoded characters of a URL that HubSpot decodes before it signs; others stay encoded."""
_STANDARD_PREFIX = "whsec_"


@dataclass(frozen=True)
class SignedRequest:
    """The signed parts of a request. Names of `headers` are in lower case; `uri` is the public one, as sent."""

    method: str
    uri: str
    headers: Mapping[str, str]
    body: bytes


class SignatureError(Exception):
    """Why a signature is refused: one sentence, without any part of the secret."""


@dataclass(frozen=True)
class Scheme:
    """A signature scheme. `header` has the signature; `mark` is a header and value that distinguish schemes with equal headers.

    `check` raises a SignatureError, and `check_secret` a ValueError for an invalid secret.
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
    """Raise a SignatureError unless the request is signed with one of the secrets.

    Only the first scheme whose header is present counts: a failed signature is not tried as an older, weaker scheme.
    """
    for name in schemes:
        if SCHEMES[name].is_used(request):
            SCHEMES[name].check(request, secrets, now)
            return
    raise SignatureError(say_unsigned(schemes))


def is_signed(request: SignedRequest, schemes: Sequence[SignatureScheme]) -> bool:
    """Return whether a request has a signature of any of these schemes, valid or not."""
    return any(SCHEMES[name].is_used(request) for name in schemes)


def say_unsigned(schemes: Sequence[SignatureScheme]) -> str:
    return f"it is not signed: send the header {' or '.join(_title(SCHEMES[name].header) for name in schemes)}"


def sign(request: SignedRequest, scheme: SignatureScheme, *, secret: str, now: datetime) -> dict[str, str]:
    """Return the signature headers of this scheme."""
    return SCHEMES[scheme].sign(request, secret, now)


def _sign_stripe(request: SignedRequest, secret: str, now: datetime) -> dict[str, str]:
    moment = str(int(now.timestamp()))
    return {"stripe-signature": f"t={moment},v1={_stripe_digest(request.body, moment, secret)}"}


def _check_stripe(request: SignedRequest, secrets: Sequence[str], now: datetime) -> None:
    parts = [part.partition("=") for part in request.headers["stripe-signature"].split(",")]
    moment = next((value for name, _, value in parts if name == "t"), "")
    sent = [value for name, _, value in parts if name == "v1"]
    if not _WHOLE.fullmatch(moment):
        raise SignatureError("Stripe-Signature has no time: send t=SECONDS,v1=SIGNATURE")
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
    """Return the scheme of version 1 or 2: a hash that starts with the secret, without a time. A header has the version."""

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
    """Return the key's bytes. In Standard Webhooks, the secret is base64, with or without the prefix `whsec_`."""
    return base64.b64decode(secret.removeprefix(_STANDARD_PREFIX) + "==")


def _check_standard_secret(secret: str) -> None:
    try:
        usable = bool(_standard_key(secret))
    except binascii.Error:
        usable = False
    if not usable:
        raise ValueError("it is not a base64-encoded key")


def _keyed(message: bytes, key: bytes) -> str:
    return base64.b64encode(hmac.new(key, message, hashlib.sha256).digest()).decode("ascii")


def _match(sent: Iterable[str], expected: Sequence[str]) -> None:
    """Raise a SignatureError unless a sent signature equals an expected one. All pairs are compared, in constant time."""
    matches = False
    valid = [signature.encode("ascii") for signature in expected]
    for signature in sent:
        received = signature.encode("latin-1", errors="replace")
        for candidate in valid:
            matches |= hmac.compare_digest(received, candidate)
    if not matches:
        raise SignatureError("the signature does not match the body: check the secret, and that no proxy changes the body")


def _check_age(moment: float, now: datetime) -> None:
    if abs(now.timestamp() - moment) > TOLERANCE_SECONDS:
        raise SignatureError(f"its time differs by more than {TOLERANCE_SECONDS} seconds: check the clocks")


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
