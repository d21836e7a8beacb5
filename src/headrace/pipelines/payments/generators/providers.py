"""How each payment provider says things: the same outcome has another word, or another number, with each of them."""

from __future__ import annotations

from typing import NamedTuple

SPELLINGS = {
    "stripe": ("Stripe", "STRIPE"),
    "braintree": ("Braintree", "BrainTree", "BRAINTREE"),
    "adyen": ("Adyen", "ADYEN"),
}
"""Other ways to write a provider's name than the usual lower case."""


class Words(NamedTuple):
    """A provider's words: of charges and refunds by outcome, of disputes by step and end, of subscriptions by standing."""

    charge: dict[str, tuple[str, ...]]
    failures: tuple[tuple[str, str], ...]
    refund: dict[str, str]
    dispute: tuple[str, str]
    decided: tuple[str, str]
    subscription: dict[str, str]


WORDS = {
    "stripe": Words(
        charge={"succeeded": ("succeeded",), "pending": ("pending",), "failed": ("failed",)},
        failures=(
            ("card_declined", "Your card was declined."),
            ("insufficient_funds", "Your card has insufficient funds."),
            ("expired_card", "Your card has expired."),
            ("incorrect_cvc", "Your card's security code is incorrect."),
            ("processing_error", "An error occurred while processing your card."),
        ),
        refund={"succeeded": "succeeded", "pending": "pending", "failed": "failed"},
        dispute=("needs_response", "under_review"),
        decided=("won", "lost"),
        subscription={"trialing": "trialing", "active": "active", "past_due": "past_due", "canceled": "canceled"},
    ),
    "braintree": Words(
        charge={
            "succeeded": ("settled", "settled", "settling"),
            "pending": ("submitted_for_settlement",),
            "failed": ("processor_declined", "processor_declined", "gateway_rejected"),
        },
        failures=(
            ("2000", "Do Not Honor"),
            ("2001", "Insufficient Funds"),
            ("2004", "Expired Card"),
            ("2010", "Card Issuer Declined CVV"),
            ("3000", "Processor Network Unavailable - Try Again"),
        ),
        refund={"succeeded": "settled", "pending": "submitted_for_settlement", "failed": "settlement_declined"},
        dispute=("open", "disputed"),
        decided=("won", "lost"),
        subscription={"trialing": "Active", "active": "Active", "past_due": "Past Due", "canceled": "Canceled"},
    ),
    "adyen": Words(
        charge={
            "succeeded": ("Authorised", "SentForSettle", "Settled"),
            "pending": ("Received",),
            "failed": ("Refused", "Refused", "Error"),
        },
        failures=(
            ("2", "Refused"),
            ("12", "Not enough balance"),
            ("6", "Expired Card"),
            ("24", "CVC Declined"),
            ("4", "Acquirer Error"),
        ),
        refund={"succeeded": "Refunded", "pending": "SentForRefund", "failed": "RefundFailed"},
        dispute=("Undefended", "Pending"),
        decided=("Won", "Lost"),
        subscription={"trialing": "TRIAL", "active": "ACTIVE", "past_due": "OVERDUE", "canceled": "CANCELLED"},
    ),
}

REFUND_FAILURES = ("lost_or_stolen_card", "expired_or_canceled_card", "account_closed")
REFUND_REASONS = ("requested_by_customer", "duplicate", "fraudulent", "product_not_received", "product_unacceptable")

DISPUTE_REASONS = {
    "fraudulent": {"visa": "10.4", "mastercard": "4837", "amex": "F29", "discover": "UA02", "sepa": "MD01"},
    "product_not_received": {"visa": "13.1", "mastercard": "4855", "amex": "C08", "discover": "RG", "sepa": "MD06"},
    "product_unacceptable": {"visa": "13.3", "mastercard": "4853", "amex": "C31", "discover": "RM", "sepa": "MD06"},
    "duplicate": {"visa": "12.6", "mastercard": "4834", "amex": "P08", "discover": "DP", "sepa": "MD06"},
    "subscription_canceled": {"visa": "13.2", "mastercard": "4841", "amex": "C28", "discover": "AP", "sepa": "MD01"},
}
"""What a dispute is about, and the number that each network gives it."""

INTERNAL_REASONS = {
    "fraudulent": "FRAUD",
    "product_not_received": "FULFILMENT",
    "product_unacceptable": "QUALITY",
    "duplicate": "BILLING",
    "subscription_canceled": "BILLING",
}
