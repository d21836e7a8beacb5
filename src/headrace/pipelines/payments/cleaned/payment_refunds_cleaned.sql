/*
about: Each refund event once, with one spelling of its reason and an outcome even where the provider left out the status.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the event has an id: {that: event_id IS NOT NULL, on_failure: quarantine}
  the event has a refund: {that: refund_id IS NOT NULL, on_failure: quarantine}
  the event has a charge: {that: charge_id IS NOT NULL, on_failure: quarantine}
  the event has a time: {that: created_at IS NOT NULL, on_failure: quarantine}
  the amount is positive: {that: amount > 0, on_failure: quarantine}
  the provider is one we know: "provider IN ('STRIPE', 'BRAINTREE', 'ADYEN')"
  the provider gives a status: status IS NOT NULL
  the outcome is known: common_status <> 'unknown'
  the reason is one we know: "reason IN ('requested_by_customer', 'duplicate', 'fraudulent', 'product_not_received', 'product_unacceptable')"
  the currency is in ISO 4217: currency IS NOT NULL
  there is a support ticket: support_ticket_id IS NOT NULL
  a failed refund says why: common_status <> 'failed' OR failure_category IS NOT NULL
*/
WITH refunds AS (
    SELECT *, null_spellings() AS nothing
    FROM payments_db.payment_refunds
),

spelled AS (
    SELECT
        clean_text(event_id, nothing) AS event_id,
        clean_lower(event_type, nothing) AS event_type,
        clean_upper(provider, nothing) AS provider,
        clean_text(refund_id, nothing) AS refund_id,
        clean_text(charge_id, nothing) AS charge_id,
        clean_text(customer_id, nothing) AS customer_id,
        amount,
        upper(trim(currency)) AS currency,
        clean_text(status, nothing) AS status,
        -- RequestedByCustomer, " requested by customer " and requested-by-customer. are all requested_by_customer.
        IF(
            is_null_text(reason, nothing),
            NULL,
            trim(BOTH '_' FROM regexp_replace(lower(regexp_replace(reason, '([a-z])([A-Z])', '$1_$2')), '[^a-z0-9]+', '_'))
        ) AS reason,
        clean_lower(failure_reason, nothing) AS failure_reason,
        clean_text(merchant_id, nothing) AS merchant_id,
        clean_lower(metadata.refund_requested_by, nothing) AS refund_requested_by,
        clean_text(metadata.original_order_id, nothing) AS original_order_id,
        clean_text(metadata.support_ticket_id, nothing) AS support_ticket_id,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM refunds
)

SELECT
    spelled.event_id,
    spelled.event_type,
    spelled.provider,
    spelled.refund_id,
    spelled.charge_id,
    spelled.customer_id,
    spelled.amount,
    iso_currency.code AS currency,
    spelled.status,
    spelled.reason,
    spelled.failure_reason,
    spelled.merchant_id,
    spelled.refund_requested_by,
    spelled.original_order_id,
    spelled.support_ticket_id,
    spelled.created_at,
    spelled.updated_at,
    -- Where the status is missing, the event's type still tells how the refund went.
    CASE
        WHEN lower(spelled.status) IN ('succeeded', 'settled', 'refunded') THEN 'succeeded'
        WHEN lower(spelled.status) IN ('pending', 'submitted_for_settlement', 'sentforrefund') THEN 'pending'
        WHEN lower(spelled.status) IN ('failed', 'settlement_declined', 'refundfailed') THEN 'failed'
        WHEN spelled.status IS NULL AND spelled.event_type IN ('refund.succeeded', 'refund.pending', 'refund.failed')
            THEN split_part(spelled.event_type, '.', -1)
        ELSE 'unknown'
    END AS common_status,
    CASE
        WHEN spelled.failure_reason = 'expired_or_canceled_card' THEN 'expired_card'
        WHEN spelled.failure_reason IN ('lost_or_stolen_card', 'account_closed') THEN spelled.failure_reason
        WHEN spelled.failure_reason IS NOT NULL THEN 'other'
    END AS failure_category,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN payments_db.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
