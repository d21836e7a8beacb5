/*
about: What was known of a charge's customer when it was made - how many charges, how much and how risky in the hour up to it.
keys: [event_id]
partition_by: [days(created_at)]
constant: [created_at]
window: {partition_by: [customer_id], order_by: created_at, range: 1 hour}
expect:
  a charge counts itself: transactions_1h >= 1
  the total includes the charge: total_amount_1h >= amount
*/
-- The hour includes both ends, and charges of the same moment see one another, as RANGE has it. Amounts are added whatever
-- their currency: the model wants the size of what goes on, and that is what the window has always meant.
SELECT
    event_id,
    charge_id,
    customer_id,
    merchant_id,
    provider,
    amount,
    currency,
    payment_method_type,
    card_brand,
    card_country,
    billing_country,
    coalesce(card_country <> billing_country, false) AS is_foreign_card,
    `3ds_authenticated`,
    risk_score,
    created_at,
    count(*) OVER last_hour AS transactions_1h,
    sum(amount) OVER last_hour AS total_amount_1h,
    avg(risk_score) OVER last_hour AS avg_risk_1h
FROM payments_db.payment_charges_cleaned
WINDOW last_hour AS (
    PARTITION BY customer_id
    ORDER BY created_at
    RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW
)
