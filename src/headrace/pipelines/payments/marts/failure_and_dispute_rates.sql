/*
about: Of each day's charges with a provider, how many failed, and why, and how many were refunded or disputed since.
keys: [day, provider]
partition_by: [months(day)]
expect:
  no rate is above 1: failure_rate <= 1 AND coalesce(dispute_rate, 0) <= 1
*/
-- A dispute counts on the day of its charge, not on its own: so a rate is of charges that could be disputed, and a day's rate
-- grows for a while after it.
SELECT
    date(created_at) AS day,
    coalesce(provider, 'UNKNOWN') AS provider,
    count(*) AS charges,
    count_if(common_status = 'succeeded') AS succeeded,
    count_if(common_status = 'pending') AS pending,
    count_if(common_status = 'failed') AS failed,
    count_if(common_status = 'failed' AND failure_category = 'declined') AS failed_declined,
    count_if(common_status = 'failed' AND failure_category = 'insufficient_funds') AS failed_insufficient_funds,
    count_if(common_status = 'failed' AND failure_category = 'expired_card') AS failed_expired_card,
    count_if(common_status = 'failed' AND failure_category = 'incorrect_cvc') AS failed_incorrect_cvc,
    count_if(common_status = 'failed' AND failure_category = 'processing_error') AS failed_processing_error,
    count_if(is_refunded) AS refunded,
    count_if(is_disputed) AS disputed,
    count_if(is_disputed_as_fraud) AS disputed_as_fraud,
    count_if(dispute_status = 'lost') AS disputes_lost,
    CAST(CAST(count_if(common_status = 'failed') AS DECIMAL(18, 0)) / count(*) AS DECIMAL(7, 6)) AS failure_rate,
    CAST(CAST(count_if(is_refunded) AS DECIMAL(18, 0)) / nullif(count_if(common_status = 'succeeded'), 0) AS DECIMAL(7, 6))
        AS refund_rate,
    CAST(CAST(count_if(is_disputed) AS DECIMAL(18, 0)) / nullif(count_if(common_status = 'succeeded'), 0) AS DECIMAL(7, 6))
        AS dispute_rate
FROM payments_db.charges_enriched
GROUP BY date(created_at), coalesce(provider, 'UNKNOWN')
