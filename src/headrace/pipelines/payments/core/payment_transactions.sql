/*
about: What every charge, refund and dispute event of every provider means in common words, and does to the merchant's balance.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
expect:
  the transaction has an id: {that: transaction_id IS NOT NULL, on_failure: quarantine}
  the status is one we know: status <> 'unknown'
  the currency is known: currency <> 'XXX'
  only what failed has a failure category: status = 'failed' OR failure_category IS NULL
  no more than the amount moves: abs(signed_amount) <= amount
*/
-- signed_amount adds up to the merchant's balance. In: a charge that succeeded, a dispute that was won. Out: a refund that
-- succeeded, a dispute that was opened, because the bank takes the money at once. What failed, is pending or only moves on: 0.
SELECT
    event_id,
    charge_id AS transaction_id,
    'charge' AS transaction_type,
    charge_id,
    coalesce(provider, 'UNKNOWN') AS provider,
    customer_id,
    merchant_id,
    common_status AS status,
    IF(common_status = 'failed', failure_category, NULL) AS failure_category,
    CAST(NULL AS STRING) AS reason,
    amount,
    CAST(IF(common_status = 'succeeded', amount, 0) AS DECIMAL(10, 2)) AS signed_amount,
    -- XXX is what ISO 4217 calls no currency.
    coalesce(currency, 'XXX') AS currency,
    created_at,
    updated_at
FROM payments_db.payment_charges_cleaned

UNION ALL

SELECT
    event_id,
    refund_id AS transaction_id,
    'refund' AS transaction_type,
    charge_id,
    coalesce(provider, 'UNKNOWN') AS provider,
    customer_id,
    merchant_id,
    common_status AS status,
    IF(common_status = 'failed', failure_category, NULL) AS failure_category,
    reason,
    amount,
    CAST(IF(common_status = 'succeeded', -amount, 0) AS DECIMAL(10, 2)) AS signed_amount,
    coalesce(currency, 'XXX') AS currency,
    created_at,
    updated_at
FROM payments_db.payment_refunds_cleaned

UNION ALL

SELECT
    event_id,
    dispute_id AS transaction_id,
    'dispute' AS transaction_type,
    charge_id,
    coalesce(provider, 'UNKNOWN') AS provider,
    customer_id,
    merchant_id,
    common_status AS status,
    CAST(NULL AS STRING) AS failure_category,
    reason,
    amount,
    CAST(
        CASE common_status WHEN 'needs_response' THEN -amount WHEN 'won' THEN amount ELSE 0 END AS DECIMAL(10, 2)
    ) AS signed_amount,
    coalesce(currency, 'XXX') AS currency,
    created_at,
    updated_at
FROM payments_db.payment_disputes_cleaned
