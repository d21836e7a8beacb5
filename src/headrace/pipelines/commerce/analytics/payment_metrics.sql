/*
about: How the charges of each day went, by currency and method - what was taken, given back, and how many failed.
keys: [day, currency, payment_method_type]
partition_by: [months(day)]
expect:
  no rate is above 1: failure_rate <= 1 AND coalesce(refund_rate, 0) <= 1
*/
-- A refund counts on the day of its charge: so a rate is of charges that could be refunded, and grows for a while.
SELECT
    date(created_at) AS day,
    currency,
    payment_method_type,
    count(*) AS charge_count,
    count_if(status = 'succeeded') AS succeeded_charge_count,
    count_if(status = 'pending') AS pending_charge_count,
    count_if(status = 'failed') AS failed_charge_count,
    count_if(refunded_amount > 0) AS refunded_charge_count,
    count_if(is_disputed) AS disputed_charge_count,
    count(DISTINCT entity_id) AS payers,
    sum(charged_amount) AS charged_amount,
    sum(refunded_amount) AS refunded_amount,
    sum(charged_amount) - sum(refunded_amount) AS net_amount,
    coalesce(sum(amount) FILTER (WHERE status = 'failed'), 0) AS failed_amount,
    CAST(CAST(count_if(status = 'failed') AS DECIMAL(18, 0)) / count(*) AS DECIMAL(7, 6)) AS failure_rate,
    CAST(
        CAST(count_if(refunded_amount > 0) AS DECIMAL(18, 0)) / nullif(count_if(status = 'succeeded'), 0) AS DECIMAL(7, 6)
    ) AS refund_rate
FROM analytics.entity_charges
GROUP BY date(created_at), currency, payment_method_type
