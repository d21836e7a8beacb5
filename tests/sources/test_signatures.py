"""Webhook signatures match the providers' own packages, and any changed bit is detected."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from random import Random

import pytest
import shopify
from hubspot.utils.signature import Signature
from hypothesis import given, settings
from hypothesis import strategies as st
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from stripe import SignatureVerificationError, WebhookSignature

from headrace.sources.signatures import (
    SCHEMES,
    TOLERANCE_SECONDS,
    SignatureError,
    SignedRequest,
    check_signature,
    sign,
)
from headrace.spec.model.pipeline import SignatureScheme
from headrace.spec.model.webhooks import SCHEMES as NAMES

NOW = datetime.now(timezone.utc).replace(microsecond=0)
URI = "https://shop.example/webhooks/x?tenant=7"
SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes, or so").decode()
OTHER = "whsec_" + base64.b64encode(b"another key that someone rotated").decode()
BODY = '{"id": 1, "name": "Łucja ☕", "price": "12.50"}'.encode()
TIMED: tuple[SignatureScheme, ...] = ("stripe", "hubspot-v3", "standard-webhooks")
RANDOM_BODIES = settings(max_examples=1_000, deadline=None, derandomize=True)

texts = st.text(st.characters(codec="utf-8"), max_size=300)
keys = st.binary(min_size=1, max_size=64).map(lambda key: "whsec_" + base64.b64encode(key).decode())


def request(body: bytes = BODY, **headers: str) -> SignedRequest:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return SignedRequest("POST", URI, {"webhook-id": "msg_1", **given}, body)


def signed(scheme: SignatureScheme, *, secret: str = SECRET, body: bytes = BODY, now: datetime = NOW) -> SignedRequest:
    plain = request(body)
    return replace(plain, headers={**plain.headers, **sign(plain, scheme, secret=secret, now=now)})


def passes(
    signed_request: SignedRequest, *schemes: SignatureScheme, secrets: Sequence[str] = (SECRET,), now: datetime = NOW
) -> bool:
    try:
        check_signature(signed_request, schemes, secrets=secrets, now=now)
    except SignatureError:
        return False
    return True


def with_header(signed_request: SignedRequest, name: str, value: str) -> SignedRequest:
    return replace(signed_request, headers={**signed_request.headers, name: value})


def test_schemes_has_every_declarable_scheme() -> None:
    assert set(SCHEMES) == set(NAMES)


@RANDOM_BODIES
@given(text=texts, secret=texts.filter(lambda text: text.strip() != ""))
def test_stripe_signatures_match_its_package(text: str, secret: str) -> None:
    expected = request(text.encode(), stripe_signature=WebhookSignature.generate_signature_header(text, secret))
    now = datetime.now(timezone.utc)  # the packages read the clock
    assert passes(expected, "stripe", secrets=[secret], now=now)
    header = signed("stripe", secret=secret, body=text.encode(), now=now).headers["stripe-signature"]
    assert WebhookSignature.verify_header(text.encode(), header, secret, tolerance=TOLERANCE_SECONDS)
    with pytest.raises(SignatureVerificationError):
        WebhookSignature.verify_header(text + " ", header, secret)
    assert not passes(replace(expected, body=text.encode() + b" "), "stripe", secrets=[secret], now=now)


@RANDOM_BODIES
@given(text=texts, secret=texts.filter(bool), milliseconds=st.integers(0, 299_000))
def test_hubspot_signatures_match_its_package(text: str, secret: str, milliseconds: int) -> None:
    moment = str(int(NOW.timestamp() * 1000) - milliseconds)
    expected = {version: Signature.get_signature(secret, text, version, URI, "POST", moment) for version in ("v1", "v2", "v3")}
    v3 = request(text.encode(), x_hubspot_signature_v3=expected["v3"], x_hubspot_request_timestamp=moment)
    assert passes(v3, "hubspot-v3", secrets=[secret])
    assert not passes(replace(v3, body=text.encode() + b" "), "hubspot-v3", secrets=[secret])
    olds: tuple[SignatureScheme, ...] = ("hubspot-v1", "hubspot-v2")
    for scheme in olds:
        version = scheme[-2:]
        old = request(text.encode(), x_hubspot_signature=expected[version], x_hubspot_signature_version=version)
        assert passes(old, scheme, secrets=[secret])
        assert not passes(replace(old, body=text.encode() + b" "), scheme, secrets=[secret])
    ours = sign(request(text.encode()), "hubspot-v3", secret=secret, now=datetime.now(timezone.utc))
    assert Signature.is_valid(
        ours["x-hubspot-signature-v3"], secret, text, URI, "POST", "v3", ours["x-hubspot-request-timestamp"]
    )


@RANDOM_BODIES
@given(text=texts, secret=keys, identity=st.from_regex(r"[!-~]{1,40}", fullmatch=True))
def test_standard_webhooks_signatures_match_their_package(text: str, secret: str, identity: str) -> None:
    now = datetime.now(timezone.utc)
    expected = Webhook(secret).sign(identity, now, text)
    moment = str(int(now.timestamp()))
    signed_request = request(text.encode(), webhook_id=identity, webhook_timestamp=moment, webhook_signature=expected)
    assert passes(signed_request, "standard-webhooks", secrets=[secret], now=now)
    ours = sign(request(text.encode(), webhook_id=identity), "standard-webhooks", secret=secret, now=now)
    headers = {"webhook-id": identity, **ours}
    Webhook(secret).verify(text, headers, json_parse=False)
    with pytest.raises(WebhookVerificationError):
        Webhook(secret).verify(text + " ", headers, json_parse=False)
    assert not passes(replace(signed_request, body=text.encode() + b" "), "standard-webhooks", secrets=[secret], now=now)


@RANDOM_BODIES
@given(value=texts, secret=texts.filter(bool))
def test_shopify_signatures_match_its_package(value: str, secret: str) -> None:
    """Its package has no check of webhooks: it signs parameters with the same keyed hash, in hexadecimal."""
    shopify.Session.setup(api_key="key", secret=secret)
    body = f"q={value}".replace("%", "%25").replace("&", "%26").encode()
    expected = base64.b64encode(bytes.fromhex(shopify.Session.calculate_hmac({"q": value}))).decode()
    assert passes(request(body, x_shopify_hmac_sha256=expected), "shopify", secrets=[secret])
    assert sign(request(body), "shopify", secret=secret, now=NOW) == {"x-shopify-hmac-sha256": expected}
    assert not passes(request(body + b" ", x_shopify_hmac_sha256=expected), "shopify", secrets=[secret])


def test_sign_accepts_bytes_that_are_not_text() -> None:
    random = Random(1)
    for _ in range(300):
        body = random.randbytes(random.randrange(200))
        expected = base64.b64encode(hmac.new(SECRET.encode(), body, hashlib.sha256).digest()).decode()
        assert passes(request(body, x_shopify_hmac_sha256=expected), "shopify")
        for scheme in NAMES:
            assert passes(signed(scheme, body=body), scheme)


def flipped(data: bytes) -> list[bytes]:
    """Return all variants of the bytes with one changed bit."""
    return [data[:at] + bytes([data[at] ^ (1 << bit)]) + data[at + 1 :] for at in range(len(data)) for bit in range(8)]


@pytest.mark.parametrize("scheme", NAMES)
def test_check_signature_detects_any_changed_bit_of_the_body(scheme: SignatureScheme) -> None:
    signed_request = signed(scheme)
    assert passes(signed_request, scheme)
    changed = [replace(signed_request, body=body) for body in flipped(BODY)]
    assert len(changed) == 8 * len(BODY)
    assert [variant.body for variant in changed if passes(variant, scheme)] == []
    assert not any(
        passes(replace(signed_request, body=body), scheme) for body in (b"", BODY + b"\0", BODY[1:], BODY[:-1], BODY + BODY)
    )


@pytest.mark.parametrize("scheme", NAMES)
def test_check_signature_detects_any_changed_bit_of_the_signature(scheme: SignatureScheme) -> None:
    signed_request = signed(scheme)
    own = sign(request(), scheme, secret=SECRET, now=NOW)
    for name in (*own, *(["webhook-id"] if scheme == "standard-webhooks" else [])):
        value = signed_request.headers[name]
        changed = [with_header(signed_request, name, variant.decode("latin-1")) for variant in flipped(value.encode())]
        assert [variant.headers[name] for variant in changed if passes(variant, scheme)] == []
        for other in ("", value[:-1], value + "=", value + "0", value.upper() if value != value.upper() else value.lower()):
            if other != value:
                assert not passes(with_header(signed_request, name, other), scheme), (name, other)
        assert not passes(
            replace(
                signed_request,
                headers={variant: signed_request.headers[variant] for variant in signed_request.headers if variant != name},
            ),
            scheme,
        )


@pytest.mark.parametrize("scheme", ["hubspot-v3", "hubspot-v2"])
def test_hubspot_signs_the_method_and_the_url(scheme: SignatureScheme) -> None:
    signed_request = signed(scheme)
    assert not any(passes(replace(signed_request, uri=uri.decode("latin-1")), scheme) for uri in flipped(URI.encode()))
    assert not passes(replace(signed_request, method="PUT"), scheme)


def test_hubspot_decodes_some_characters_of_the_url() -> None:
    written, decoded = "https://x.example/a%3Ab%2fc?d=%40%20e", "https://x.example/a:b/c?d=@%20e"
    moment = str(int(NOW.timestamp() * 1000))
    expected = Signature.get_signature(SECRET, "{}", "v3", decoded, "POST", moment)
    signed_request = request(b"{}", x_hubspot_signature_v3=expected, x_hubspot_request_timestamp=moment)
    assert passes(replace(signed_request, uri=written), "hubspot-v3")


@pytest.mark.parametrize("scheme", TIMED)
def test_check_signature_tolerates_five_minutes_both_ways(scheme: SignatureScheme) -> None:
    signed_request = signed(scheme)
    for seconds, good in ((0, True), (300, True), (301, False), (-300, True), (-301, False), (86_400, False)):
        assert passes(signed_request, scheme, now=NOW + timedelta(seconds=seconds)) is good, seconds
    with pytest.raises(SignatureError, match="more than 300 seconds"):
        check_signature(signed_request, [scheme], secrets=[SECRET], now=NOW + timedelta(days=1))


@pytest.mark.parametrize("scheme", NAMES)
def test_check_signature_accepts_two_secrets(scheme: SignatureScheme) -> None:
    for secret in (SECRET, OTHER):
        assert passes(signed(scheme, secret=secret), scheme, secrets=[SECRET, OTHER])
    assert not passes(signed(scheme, secret=OTHER), scheme, secrets=[SECRET])
    assert not passes(signed(scheme), scheme, secrets=[])


def test_check_signature_accepts_any_stripe_v1_signature() -> None:
    header = signed("stripe").headers["stripe-signature"]
    moment, _, digest = header.partition(",v1=")
    wrong = "0" * 64
    good = (
        f"{moment},v1={wrong},v1={digest}",
        f"{moment},v1={digest},v1={wrong}",
        f"{moment},v0=x,v1={digest},v9=",
        f"v1={digest},{moment}",
    )
    bad = (
        f"{moment},v0={digest}",
        f"{moment},v1={wrong}",
        f"v1={digest}",
        f"t=,v1={digest}",
        f"t=x,v1={digest}",
        f"{moment}.0,v1={digest}",
        ",,,",
        "=",
        "é=ü",
    )
    assert [value for value in good if not passes(with_header(request(), "stripe-signature", value), "stripe")] == []
    assert [value for value in bad if passes(with_header(request(), "stripe-signature", value), "stripe")] == []
    assert json.loads(BODY)["id"] == 1


def test_check_signature_accepts_any_standard_v1_signature() -> None:
    signed_request = signed("standard-webhooks")
    own = signed_request.headers["webhook-signature"]
    wrong = "v1," + base64.b64encode(b"0" * 32).decode()
    for value, good in (
        (f"{wrong} {own}", True),
        (f"v1a,x {own}", True),
        (wrong, False),
        (f"v2,{own[3:]}", False),
        ("v1", False),
    ):
        assert passes(with_header(signed_request, "webhook-signature", value), "standard-webhooks") is good, value


def test_check_signature_does_not_fall_back_to_an_older_scheme() -> None:
    schemes: tuple[SignatureScheme, ...] = ("hubspot-v3", "hubspot-v2", "hubspot-v1")
    old = signed("hubspot-v1")
    assert passes(old, *schemes)
    assert not passes(old, "hubspot-v3")
    both = replace(old, headers={**old.headers, **signed("hubspot-v3").headers})
    assert passes(both, *schemes)
    assert not passes(with_header(both, "x-hubspot-signature-v3", "AAAA"), *schemes)


def test_signature_errors_contain_no_secret() -> None:
    headers: Sequence[Mapping[str, str]] = ({}, {"stripe-signature": "t=1,v1=aa"}, {"stripe-signature": "x"})
    for header in headers:
        with pytest.raises(SignatureError) as caught:
            check_signature(replace(request(), headers=header), ["stripe"], secrets=[SECRET], now=NOW)
        assert SECRET not in str(caught.value)
        assert SECRET[6:] not in str(caught.value)
