/*
about: What each person ordered and paid in each currency. Money of different currencies is never added up.
keys: [entity_id, currency]
expect:
  no more is given back than was taken: refunded_amount <= charged_amount
*/
-- ordered_amount is the total of the orders that were not cancelled, cancelled_amount of the cancelled ones: together they are all.
-- charged_amount is what Stripe took, refunded_amount what it gave back of that, net_amount the difference. A failed charge moves
-- nothing: failed_amount is what was asked for. Orders and charges are two tellings of the same sale and are not added to each other.
WITH facts AS (
    SELECT
        entity_id,
        currency,
        'order' AS kind,
        total_amount AS order_amount,
        is_cancelled,
        is_paid,
        CAST(NULL AS STRING) AS status,
        CAST(NULL AS DECIMAL(18, 3)) AS asked_amount,
        CAST(NULL AS DECIMAL(18, 3)) AS charged_amount,
        CAST(NULL AS DECIMAL(18, 3)) AS refunded_amount,
        CAST(NULL AS BOOLEAN) AS is_disputed,
        created_at
    FROM analytics.entity_orders
    UNION ALL
    SELECT
        entity_id,
        currency,
        'charge' AS kind,
        CAST(NULL AS DECIMAL(19, 3)) AS order_amount,
        CAST(NULL AS BOOLEAN) AS is_cancelled,
        CAST(NULL AS BOOLEAN) AS is_paid,
        status,
        amount AS asked_amount,
        charged_amount,
        refunded_amount,
        is_disputed,
        created_at
    FROM analytics.entity_charges
)

SELECT
    entity_id,
    currency,
    count_if(kind = 'order') AS order_count,
    count_if(is_cancelled) AS cancelled_order_count,
    count_if(is_paid AND NOT is_cancelled) AS paid_order_count,
    coalesce(sum(order_amount) FILTER (WHERE NOT is_cancelled), 0) AS ordered_amount,
    coalesce(sum(order_amount) FILTER (WHERE is_cancelled), 0) AS cancelled_amount,
    min(created_at) FILTER (WHERE kind = 'order') AS first_order_at,
    max(created_at) FILTER (WHERE kind = 'order') AS last_order_at,
    count_if(kind = 'charge') AS charge_count,
    count_if(status = 'succeeded') AS succeeded_charge_count,
    count_if(status = 'failed') AS failed_charge_count,
    count_if(refunded_amount > 0) AS refunded_charge_count,
    count_if(is_disputed) AS disputed_charge_count,
    coalesce(sum(charged_amount), 0) AS charged_amount,
    coalesce(sum(refunded_amount), 0) AS refunded_amount,
    coalesce(sum(charged_amount), 0) - coalesce(sum(refunded_amount), 0) AS net_amount,
    coalesce(sum(asked_amount) FILTER (WHERE status = 'failed'), 0) AS failed_amount,
    min(created_at) FILTER (WHERE kind = 'charge') AS first_charge_at,
    max(created_at) FILTER (WHERE kind = 'charge') AS last_charge_at
FROM facts
GROUP BY entity_id, currency
