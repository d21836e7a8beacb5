/*
about: Each step of a dispute once, with the case number whole or null, and its evidence in columns.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the event has an id: {that: event_id IS NOT NULL, on_failure: quarantine}
  the event has a dispute: {that: dispute_id IS NOT NULL, on_failure: quarantine}
  the event has a charge: {that: charge_id IS NOT NULL, on_failure: quarantine}
  the event has a time: {that: created_at IS NOT NULL, on_failure: quarantine}
  the amount is positive: {that: amount > 0, on_failure: quarantine}
  the provider is one we know: "provider IN ('STRIPE', 'BRAINTREE', 'ADYEN')"
  the status is one we know: common_status <> 'unknown'
  the currency is in ISO 4217: currency IS NOT NULL
  the case number is whole: case_number IS NOT NULL
  there is evidence metadata: has_evidence
*/
-- What this event lacks and others of its dispute or its charge know, the table disputes fills in.
WITH disputes AS (
    SELECT *, null_spellings() AS nothing
    FROM payments_db.payment_disputes
),

spelled AS (
    SELECT
        clean_text(event_id, nothing) AS event_id,
        clean_lower(event_type, nothing) AS event_type,
        clean_upper(provider, nothing) AS provider,
        clean_text(dispute_id, nothing) AS dispute_id,
        clean_text(charge_id, nothing) AS charge_id,
        clean_text(customer_id, nothing) AS customer_id,
        amount,
        upper(trim(currency)) AS currency,
        clean_text(status, nothing) AS status,
        clean_lower(reason, nothing) AS reason,
        clean_lower(network, nothing) AS network,
        clean_upper(network_reason_code, nothing) AS network_reason_code,
        clean_upper(internal_reason, nothing) AS internal_reason,
        upper(trim(case_number)) AS case_number,
        evidence,
        is_charge_refundable,
        clean_text(merchant_id, nothing) AS merchant_id,
        clean_text(metadata.original_order_id, nothing) AS original_order_id,
        clean_text(metadata.assigned_to, nothing) AS assigned_to,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM disputes
)

SELECT
    spelled.event_id,
    spelled.event_type,
    spelled.provider,
    spelled.dispute_id,
    spelled.charge_id,
    spelled.customer_id,
    spelled.amount,
    iso_currency.code AS currency,
    spelled.status,
    spelled.reason,
    spelled.network,
    spelled.network_reason_code,
    spelled.internal_reason,
    -- Only the letters in front can be put back: they are always the same.
    CASE
        WHEN spelled.case_number RLIKE '^CB-[0-9]{8}-[0-9A-F]{4}$' THEN spelled.case_number
        WHEN spelled.case_number RLIKE '^[0-9]{8}-[0-9A-F]{4}$' THEN concat('CB-', spelled.case_number)
    END AS case_number,
    spelled.evidence IS NOT NULL AS has_evidence,
    spelled.evidence.due_by AS evidence_due_by,
    spelled.evidence.submitted_at AS evidence_submitted_at,
    spelled.evidence.submission_count AS evidence_submission_count,
    spelled.evidence.documents AS evidence_documents,
    spelled.is_charge_refundable,
    spelled.merchant_id,
    spelled.original_order_id,
    spelled.assigned_to,
    spelled.created_at,
    spelled.updated_at,
    CASE
        WHEN lower(spelled.status) IN ('needs_response', 'open', 'undefended') THEN 'needs_response'
        WHEN lower(spelled.status) IN ('under_review', 'disputed', 'pending') THEN 'under_review'
        WHEN lower(spelled.status) IN ('won', 'lost') THEN lower(spelled.status)
        ELSE 'unknown'
    END AS common_status,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN payments_db.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
