/*
about: Each dispute as it stands now, with what any of its events, or its merchant, knows of it.
keys: [dispute_id]
rebuild_on:
  payments_db.merchants: [merchant_id]
expect:
  the currency is known: currency IS NOT NULL
  the case number is whole: case_number IS NOT NULL
  a decided dispute was opened before: closed_at IS NULL OR opened_at <= closed_at
*/
-- The last event says how the dispute stands; what it left out, the last event that has it says.
WITH latest AS (
    SELECT
        dispute_id,
        max_by(charge_id, struct(updated_at, event_id)) AS charge_id,
        max_by(customer_id, struct(updated_at, event_id)) FILTER (WHERE customer_id IS NOT NULL) AS customer_id,
        max_by(merchant_id, struct(updated_at, event_id)) FILTER (WHERE merchant_id IS NOT NULL) AS merchant_id,
        max_by(provider, struct(updated_at, event_id)) FILTER (WHERE provider IS NOT NULL) AS provider,
        max_by(amount, struct(updated_at, event_id)) AS amount,
        max_by(currency, struct(updated_at, event_id)) FILTER (WHERE currency IS NOT NULL) AS currency,
        max_by(status, struct(updated_at, event_id)) AS status,
        max_by(common_status, struct(updated_at, event_id)) AS common_status,
        max_by(reason, struct(updated_at, event_id)) FILTER (WHERE reason IS NOT NULL) AS reason,
        max_by(network, struct(updated_at, event_id)) FILTER (WHERE network IS NOT NULL) AS network,
        max_by(network_reason_code, struct(updated_at, event_id)) FILTER (WHERE network_reason_code IS NOT NULL)
            AS network_reason_code,
        max_by(internal_reason, struct(updated_at, event_id)) FILTER (WHERE internal_reason IS NOT NULL) AS internal_reason,
        max_by(case_number, struct(updated_at, event_id)) FILTER (WHERE case_number IS NOT NULL) AS case_number,
        max_by(evidence_due_by, struct(updated_at, event_id)) FILTER (WHERE has_evidence) AS evidence_due_by,
        max_by(evidence_submitted_at, struct(updated_at, event_id)) FILTER (WHERE has_evidence) AS evidence_submitted_at,
        max_by(evidence_documents, struct(updated_at, event_id)) FILTER (WHERE has_evidence) AS evidence_documents,
        min(created_at) AS opened_at,
        max(updated_at) AS updated_at,
        max(created_at) FILTER (WHERE common_status IN ('won', 'lost')) AS closed_at
    FROM payments_db.payment_disputes_cleaned
    GROUP BY dispute_id
)

SELECT
    latest.dispute_id,
    latest.charge_id,
    latest.customer_id,
    latest.merchant_id,
    latest.provider,
    latest.amount,
    -- A merchant that takes one currency is asked for no other. Its charge would know too, but merchants are few and stay put.
    coalesce(latest.currency, IF(size(merchant.currencies) = 1, merchant.currencies[0], NULL)) AS currency,
    latest.status,
    latest.common_status,
    latest.reason,
    coalesce(latest.reason = 'fraudulent', false) AS is_fraud,
    latest.network,
    latest.network_reason_code,
    latest.internal_reason,
    latest.case_number,
    latest.evidence_due_by,
    latest.evidence_submitted_at,
    latest.evidence_documents,
    latest.opened_at,
    latest.updated_at,
    latest.closed_at
FROM latest
LEFT JOIN payments_db.merchants AS merchant ON merchant.merchant_id = latest.merchant_id
