/*
about: What was ordered and what was paid on each day, by currency.
keys: [day, currency]
partition_by: [months(day)]
*/
-- Orders count on the day they were made, payments on the day of their charge.
WITH days AS (
    SELECT
        starts_on AS day,
        currency,
        order_count,
        cancelled_order_count,
        paid_order_count,
        guest_order_count,
        buyers,
        ordered_amount,
        cancelled_amount,
        discount_amount,
        CAST(NULL AS BIGINT) AS charge_count,
        CAST(NULL AS BIGINT) AS failed_charge_count,
        CAST(NULL AS BIGINT) AS refunded_charge_count,
        CAST(NULL AS DECIMAL(28, 3)) AS charged_amount,
        CAST(NULL AS DECIMAL(28, 3)) AS refunded_amount
    FROM analytics.order_summary
    WHERE period = 'day'
    UNION ALL
    SELECT
        day,
        currency,
        CAST(NULL AS BIGINT) AS order_count,
        CAST(NULL AS BIGINT) AS cancelled_order_count,
        CAST(NULL AS BIGINT) AS paid_order_count,
        CAST(NULL AS BIGINT) AS guest_order_count,
        CAST(NULL AS BIGINT) AS buyers,
        CAST(NULL AS DECIMAL(29, 3)) AS ordered_amount,
        CAST(NULL AS DECIMAL(29, 3)) AS cancelled_amount,
        CAST(NULL AS DECIMAL(29, 3)) AS discount_amount,
        charge_count,
        failed_charge_count,
        refunded_charge_count,
        charged_amount,
        refunded_amount
    FROM analytics.payment_metrics
)

SELECT
    day,
    currency,
    coalesce(sum(order_count), 0) AS order_count,
    coalesce(sum(cancelled_order_count), 0) AS cancelled_order_count,
    coalesce(sum(paid_order_count), 0) AS paid_order_count,
    coalesce(sum(guest_order_count), 0) AS guest_order_count,
    coalesce(sum(buyers), 0) AS buyers,
    CAST(coalesce(sum(ordered_amount), 0) AS DECIMAL(29, 3)) AS ordered_amount,
    CAST(coalesce(sum(cancelled_amount), 0) AS DECIMAL(29, 3)) AS cancelled_amount,
    CAST(coalesce(sum(discount_amount), 0) AS DECIMAL(29, 3)) AS discount_amount,
    CAST(sum(ordered_amount) / nullif(sum(order_count) - sum(cancelled_order_count), 0) AS DECIMAL(19, 3))
        AS average_order_amount,
    coalesce(sum(charge_count), 0) AS charge_count,
    coalesce(sum(failed_charge_count), 0) AS failed_charge_count,
    coalesce(sum(refunded_charge_count), 0) AS refunded_charge_count,
    CAST(coalesce(sum(charged_amount), 0) AS DECIMAL(28, 3)) AS charged_amount,
    CAST(coalesce(sum(refunded_amount), 0) AS DECIMAL(28, 3)) AS refunded_amount,
    CAST(coalesce(sum(charged_amount), 0) - coalesce(sum(refunded_amount), 0) AS DECIMAL(28, 3)) AS net_amount
FROM days
GROUP BY day, currency
