/*
about: Each charge of Stripe as it stands now, in whole units of its currency - dollars, yen, dinars - instead of the smallest ones.
keys: [charge_id]
sequence_by: _version
partition_by: [months(created_at)]
except_column_list: [minor_amount, is_exact, kafka_topic, kafka_partition, kafka_offset]
expect:
  the charge has an id: {that: charge_id IS NOT NULL, on_failure: quarantine}
  the charge has a time: {that: created_at IS NOT NULL, on_failure: quarantine}
  the currency is in ISO 4217: {that: currency IS NOT NULL, on_failure: quarantine}
  the amount is positive: {that: minor_amount > 0, on_failure: quarantine}
  each amount has at most 15 digits before the point and 3 after it: {that: is_exact, on_failure: quarantine}
  the status is one we know: "status IN ('succeeded', 'pending', 'failed')"
  no more is refunded than was captured: amount_refunded <= amount_captured
  a failed charge says why: status <> 'failed' OR failure_code IS NOT NULL
  the receipt's email address has an @: "receipt_email IS NULL OR receipt_email LIKE '_%@_%'"
*/
-- Events of the same second are ordered by how far the charge is: decided, captured, refunded. What a charge is of, its shop
-- wrote into the metadata.
WITH charges AS (
    SELECT
        *,
        null_spellings() AS nothing,
        no_name_spellings() AS no_name,
        blank_signs() AS blanks
    FROM raw.stripe_charges
),

spelled AS (
    SELECT
        clean_text(id, nothing, blanks) AS charge_id,
        IF(
            is_null_text(trim(BOTH blanks FROM customer), nothing),
            NULL,
            coalesce(get_json_object(customer, '$.id'), trim(BOTH blanks FROM customer))
        ) AS customer_id,
        amount,
        amount_captured,
        amount_refunded,
        upper(trim(BOTH blanks FROM currency)) AS currency,
        clean_lower(status, nothing, blanks) AS status,
        paid,
        captured,
        refunded,
        disputed,
        clean_lower(failure_code, nothing, blanks) AS failure_code,
        clean_text(failure_message, nothing, blanks) AS failure_message,
        clean_text(description, nothing, blanks) AS description,
        clean_text(receipt_email, nothing, blanks) AS receipt_email,
        trim(BOTH blanks FROM get_json_object(billing_details, '$.email')) AS billing_email,
        trim(BOTH blanks FROM get_json_object(billing_details, '$.phone')) AS billing_phone,
        trim(BOTH blanks FROM get_json_object(billing_details, '$.name')) AS billing_name,
        nullif(upper(trim(BOTH blanks FROM get_json_object(billing_details, '$.address.country'))), '') AS country,
        nullif(trim(BOTH blanks FROM get_json_object(billing_details, '$.address.postal_code')), '') AS postal_code,
        nullif(trim(BOTH blanks FROM get_json_object(metadata, '$.order_id')), '') AS order_id,
        nullif(trim(BOTH blanks FROM payment_intent), '') AS payment_intent_id,
        nullif(trim(BOTH blanks FROM payment_method), '') AS payment_method_id,
        get_json_object(payment_method_details, '$.type') AS payment_method_type,
        get_json_object(payment_method_details, '$.card.brand') AS card_brand,
        get_json_object(payment_method_details, '$.card.last4') AS card_last4,
        created,
        coalesce(event_created, created) AS updated_at,
        nothing,
        no_name,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM charges
)

SELECT
    spelled.charge_id,
    spelled.customer_id,
    spelled.receipt_email,
    unless_null(spelled.billing_email, spelled.nothing) AS billing_email,
    unless_null(spelled.billing_phone, spelled.nothing) AS billing_phone,
    unless_null(spelled.billing_name, spelled.no_name) AS billing_name,
    spelled.country,
    spelled.postal_code,
    spelled.order_id,
    -- Three decimals are as many as any currency has that Stripe takes.
    try_cast(CAST(spelled.amount AS DECIMAL(19, 0)) * iso_currency.stripe_unit AS DECIMAL(18, 3)) AS amount,
    try_cast(CAST(spelled.amount_captured AS DECIMAL(19, 0)) * iso_currency.stripe_unit AS DECIMAL(18, 3)) AS amount_captured,
    try_cast(CAST(spelled.amount_refunded AS DECIMAL(19, 0)) * iso_currency.stripe_unit AS DECIMAL(18, 3)) AS amount_refunded,
    iso_currency.code AS currency,
    spelled.status,
    coalesce(spelled.paid, false) AS is_paid,
    coalesce(spelled.captured, false) AS is_captured,
    coalesce(spelled.refunded, false) AS is_refunded,
    coalesce(spelled.disputed, false) AS is_disputed,
    spelled.failure_code,
    spelled.failure_message,
    spelled.description,
    spelled.payment_intent_id,
    spelled.payment_method_id,
    spelled.payment_method_type,
    spelled.card_brand,
    spelled.card_last4,
    spelled.created AS created_at,
    spelled.updated_at,
    spelled._event_id AS _raw_id,
    spelled._loaded_at AS _staged_at,
    -- Whose the charge is in semantic.entity_index: who is no customer is known by this charge alone.
    coalesce(spelled.customer_id, concat('charge:', spelled.charge_id)) AS source_id,
    struct(
        spelled.updated_at AS at,
        array_position(array('pending', 'failed', 'succeeded'), spelled.status) AS status_stage,
        spelled.amount_captured AS captured,
        spelled.amount_refunded AS refunded
    ) AS _version,
    spelled.amount AS minor_amount,
    forall(
        transform(
            array(spelled.amount, spelled.amount_captured, spelled.amount_refunded),
            each -> CAST(each AS DECIMAL(19, 0)) * iso_currency.stripe_unit
        ),
        each -> each IS NULL OR coalesce(try_cast(each AS DECIMAL(18, 3)) = each, false)
    ) AS is_exact,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN reference.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
