/*
about: For each charge what could be known when it was made, and the label that came later - was it disputed as fraudulent.
target_lag: 1 minute
keys: [event_id, created_at]
partition_by: [days(created_at)]
rebuild_on:
  payments_db.disputes: [customer_id]
expect:
  the label came after the charge: label_known_at IS NULL OR label_known_at > created_at
*/
-- Features look back from created_at, and only the label looks ahead. Disputes are looked up as of the charge: one that was
-- opened later is not a feature of it, whatever is known today. label_known_at lets a model be trained as of any day.
WITH customer_disputes AS (
    SELECT customer_id, collect_list(struct(opened_at, charge_id, is_fraud)) AS disputes
    FROM payments_db.disputes
    GROUP BY customer_id
)

SELECT
    charge.event_id,
    charge.charge_id,
    charge.customer_id,
    charge.created_at,
    charge.amount,
    charge.currency,
    charge.provider,
    charge.payment_method_type,
    charge.card_brand,
    charge.is_foreign_card,
    charge.`3ds_authenticated`,
    charge.risk_score,
    hour(charge.created_at) AS hour_of_day,
    charge.transactions_1h,
    charge.total_amount_1h,
    charge.avg_risk_1h,
    size(filter(coalesce(known.disputes, array()), dispute -> dispute.opened_at < charge.created_at)) AS disputes_before,
    size(filter(coalesce(known.disputes, array()), dispute -> dispute.is_fraud AND dispute.opened_at < charge.created_at))
        AS frauds_before,
    size(filter(coalesce(known.disputes, array()), dispute -> dispute.is_fraud AND dispute.charge_id = charge.charge_id)) > 0
        AS is_fraud,
    array_min(
        transform(
            filter(known.disputes, dispute -> dispute.is_fraud AND dispute.charge_id = charge.charge_id),
            dispute -> dispute.opened_at
        )
    ) AS label_known_at
FROM payments_db.charge_features AS charge
LEFT JOIN customer_disputes AS known ON known.customer_id = charge.customer_id
