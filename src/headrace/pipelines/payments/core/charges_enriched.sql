/*
about: Each charge with its customer, its merchant, and what was refunded and disputed of it.
keys: [event_id, created_at]
partition_by: [days(created_at)]
rebuild_on:
  payments_db.customers: [customer_id]
  payments_db.merchants: [merchant_id]
  payments_db.payment_refunds_cleaned: [charge_id]
  payments_db.disputes: [charge_id]
expect:
  the customer is known: customer_first_seen_at IS NOT NULL
  the merchant is known: merchant_first_seen_at IS NOT NULL
  no more is refunded than was charged: refunded_amount <= amount
  no more is disputed than was charged: disputed_amount <= amount
*/
WITH refunds AS (
    SELECT
        charge_id,
        count(*) AS refund_count,
        sum(IF(common_status = 'succeeded', amount, 0)) AS refunded_amount,
        max(created_at) FILTER (WHERE common_status = 'succeeded') AS last_refunded_at
    FROM payments_db.payment_refunds_cleaned
    GROUP BY charge_id
),

charge_disputes AS (
    SELECT
        charge_id,
        count(*) AS dispute_count,
        sum(amount) AS disputed_amount,
        sum(IF(common_status = 'won', 0, amount)) AS withheld_amount,
        max_by(common_status, struct(opened_at, dispute_id)) AS dispute_status,
        min(opened_at) AS first_disputed_at,
        coalesce(bool_or(is_fraud), false) AS is_disputed_as_fraud
    FROM payments_db.disputes
    GROUP BY charge_id
)

SELECT
    charge.event_id,
    charge.charge_id,
    charge.provider,
    charge.customer_id,
    charge.merchant_id,
    charge.amount,
    charge.currency,
    charge.common_status,
    charge.failure_category,
    charge.payment_method_type,
    charge.card_brand,
    charge.card_country,
    charge.billing_country,
    charge.risk_score,
    charge.risk_level,
    charge.`3ds_authenticated`,
    charge.order_id,
    charge.subscription_id,
    customer.email AS customer_email,
    customer.country AS customer_country,
    customer.first_seen_at AS customer_first_seen_at,
    merchant.name AS merchant_name,
    merchant.first_seen_at AS merchant_first_seen_at,
    coalesce(refunds.refund_count, 0) AS refund_count,
    CAST(coalesce(refunds.refunded_amount, 0) AS DECIMAL(12, 2)) AS refunded_amount,
    refunds.last_refunded_at,
    coalesce(refunds.refunded_amount, 0) > 0 AS is_refunded,
    coalesce(refunds.refunded_amount, 0) >= charge.amount AS is_fully_refunded,
    coalesce(charge_disputes.dispute_count, 0) AS dispute_count,
    CAST(coalesce(charge_disputes.disputed_amount, 0) AS DECIMAL(12, 2)) AS disputed_amount,
    charge_disputes.dispute_status,
    charge_disputes.first_disputed_at,
    charge_disputes.dispute_count IS NOT NULL AS is_disputed,
    coalesce(charge_disputes.is_disputed_as_fraud, false) AS is_disputed_as_fraud,
    -- What is left of the charge: as in payment_transactions, a dispute takes its amount until it is won.
    CAST(
        IF(charge.common_status = 'succeeded', charge.amount, 0)
        - coalesce(refunds.refunded_amount, 0)
        - coalesce(charge_disputes.withheld_amount, 0) AS DECIMAL(12, 2)
    ) AS net_amount,
    charge.created_at,
    charge.updated_at
FROM payments_db.payment_charges_cleaned AS charge
LEFT JOIN payments_db.customers AS customer ON customer.customer_id = charge.customer_id
LEFT JOIN payments_db.merchants AS merchant ON merchant.merchant_id = charge.merchant_id
LEFT JOIN refunds ON refunds.charge_id = charge.charge_id
LEFT JOIN charge_disputes ON charge_disputes.charge_id = charge.charge_id
