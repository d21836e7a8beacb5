/*
about: Every state that a subscription was ever in, and from when to when.
keys: [subscription_id]
sequence_by: updated_at
stored_as_scd_type: 2
track_history_except_column_list: [event_id, event_type]
expect:
  the event has a subscription: {that: subscription_id IS NOT NULL, on_failure: quarantine}
  the status is one we know: common_status <> 'unknown'
*/
-- Only what changes in a subscription's life: its trial and its promo code don't, and the table subscriptions has them. An event
-- that changes none of it begins no state; event_id is the event that began it.
SELECT
    subscription_id,
    customer_id,
    merchant_id,
    provider,
    common_status,
    plan_id,
    plan_name,
    plan_interval,
    interval_count,
    quantity,
    amount,
    currency,
    discount_percent,
    cancel_at_period_end,
    canceled_at,
    cancellation_reason,
    event_id,
    event_type,
    updated_at
FROM payments_db.payment_subscriptions_cleaned
