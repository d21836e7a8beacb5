/*
about: Every event of every stream as it arrived, duplicates too, with the problems that it shows alone.
target_lag: 30 seconds
partition_by: [days(created_at)]
*/
-- Problems have the names that the generators give them. Only spelling and presence are looked at: this is the raw data.
-- turn is the order in which events were sent, as a time, since windows go by time: a sender goes round the partitions, so offset
-- comes before partition, and a hundred seconds are one round.
SELECT
    'charges' AS stream,
    charge.event_id,
    coalesce(charge.created_at, charge.kafka_timestamp) AS created_at,
    charge.kafka_partition,
    charge.kafka_offset,
    TIMESTAMP '1970-01-01 00:00:00Z' + (charge.kafka_offset * 100 + charge.kafka_partition) * INTERVAL 1 SECOND AS turn,
    array_compact(array(
        IF(charge.provider <> lower(trim(charge.provider)), 'mixed_case_provider', NULL),
        IF(
            size(filter(
                array(
                    charge.failure_code, charge.failure_message, charge.`3ds_authenticated`, charge.metadata.subscription_id
                ),
                text -> is_null_word(text)
            )) > 0,
            'null_text',
            NULL
        ),
        IF(
            size(filter(
                array(
                    charge.failure_code, charge.failure_message, charge.`3ds_authenticated`, charge.metadata.subscription_id
                ),
                text -> trim(text) = ''
            )) > 0,
            'empty_text',
            NULL
        ),
        IF(
            iso_billing.alpha_2 IS NULL OR (charge.card_country IS NOT NULL AND iso_card.alpha_2 IS NULL),
            'invalid_country',
            NULL
        ),
        IF(charge.billing_postal_code IS NULL, 'missing_postal_code', NULL),
        IF(charge.currency <> upper(trim(charge.currency)), 'mixed_case_currency', NULL)
    )) AS problems
FROM payments_db.payment_charges AS charge
LEFT JOIN payments_db.iso_countries AS iso_billing ON iso_billing.alpha_2 = charge.billing_country
LEFT JOIN payments_db.iso_countries AS iso_card ON iso_card.alpha_2 = charge.card_country

UNION ALL

SELECT
    'refunds' AS stream,
    event_id,
    coalesce(created_at, kafka_timestamp) AS created_at,
    kafka_partition,
    kafka_offset,
    TIMESTAMP '1970-01-01 00:00:00Z' + (kafka_offset * 100 + kafka_partition) * INTERVAL 1 SECOND AS turn,
    array_compact(array(
        IF(provider <> lower(trim(provider)), 'mixed_case_provider', NULL),
        IF(status IS NULL, 'null_status', NULL),
        IF(NOT reason RLIKE '^[a-z]+(_[a-z]+)*$', 'inconsistent_reason', NULL),
        IF(metadata.support_ticket_id IS NULL, 'missing_support_ticket', NULL)
    )) AS problems
FROM payments_db.payment_refunds

UNION ALL

SELECT
    'disputes' AS stream,
    event_id,
    coalesce(created_at, kafka_timestamp) AS created_at,
    kafka_partition,
    kafka_offset,
    TIMESTAMP '1970-01-01 00:00:00Z' + (kafka_offset * 100 + kafka_partition) * INTERVAL 1 SECOND AS turn,
    array_compact(array(
        IF(provider <> lower(trim(provider)), 'mixed_case_provider', NULL),
        IF(evidence IS NULL, 'missing_evidence', NULL),
        IF(currency IS NULL, 'null_currency', NULL),
        IF(NOT coalesce(case_number, '') RLIKE '^CB-[0-9]{8}-[0-9A-F]{4}$', 'incomplete_case_number', NULL)
    )) AS problems
FROM payments_db.payment_disputes

UNION ALL

SELECT
    'subscriptions' AS stream,
    event_id,
    coalesce(created_at, kafka_timestamp) AS created_at,
    kafka_partition,
    kafka_offset,
    TIMESTAMP '1970-01-01 00:00:00Z' + (kafka_offset * 100 + kafka_partition) * INTERVAL 1 SECOND AS turn,
    array_compact(array(
        IF(provider <> lower(trim(provider)), 'mixed_case_provider', NULL),
        IF(trial_days > 0 AND trial_start IS NULL, 'null_trial_dates', NULL),
        IF(coupon_id IS NOT NULL AND promo_code IS NULL, 'missing_promo_code', NULL),
        IF(plan_interval NOT IN ('day', 'week', 'month', 'year'), 'inconsistent_interval', NULL)
    )) AS problems
FROM payments_db.payment_subscriptions
