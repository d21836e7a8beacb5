/*
about: Each subscription as it stands now, with its trial and its promo code even where single events lost them.
keys: [subscription_id]
expect:
  a trial has dates: coalesce(trial_days, 0) = 0 OR trial_start IS NOT NULL
  a coupon has its promo code: coupon_id IS NULL OR promo_code IS NOT NULL
*/
SELECT
    subscription_id,
    max_by(customer_id, struct(updated_at, event_id)) FILTER (WHERE customer_id IS NOT NULL) AS customer_id,
    max_by(merchant_id, struct(updated_at, event_id)) FILTER (WHERE merchant_id IS NOT NULL) AS merchant_id,
    max_by(provider, struct(updated_at, event_id)) FILTER (WHERE provider IS NOT NULL) AS provider,
    max_by(common_status, struct(updated_at, event_id)) AS common_status,
    max_by(plan_id, struct(updated_at, event_id)) AS plan_id,
    max_by(plan_name, struct(updated_at, event_id)) AS plan_name,
    max_by(plan_interval, struct(updated_at, event_id)) FILTER (WHERE plan_interval IS NOT NULL) AS plan_interval,
    max_by(quantity, struct(updated_at, event_id)) AS quantity,
    max_by(amount, struct(updated_at, event_id)) AS amount,
    max_by(currency, struct(updated_at, event_id)) FILTER (WHERE currency IS NOT NULL) AS currency,
    max_by(discount_percent, struct(updated_at, event_id)) AS discount_percent,
    max_by(coupon_id, struct(updated_at, event_id)) FILTER (WHERE coupon_id IS NOT NULL) AS coupon_id,
    max_by(promo_code, struct(updated_at, event_id)) FILTER (WHERE promo_code IS NOT NULL) AS promo_code,
    max_by(user_email, struct(updated_at, event_id)) FILTER (WHERE user_email IS NOT NULL) AS email,
    max_by(signup_channel, struct(updated_at, event_id)) FILTER (WHERE signup_channel IS NOT NULL) AS signup_channel,
    max(trial_days) AS trial_days,
    min(trial_start) AS trial_start,
    min(trial_end) AS trial_end,
    max_by(current_period_start, struct(updated_at, event_id)) AS current_period_start,
    max_by(current_period_end, struct(updated_at, event_id)) AS current_period_end,
    max_by(cancel_at_period_end, struct(updated_at, event_id)) AS cancel_at_period_end,
    max(canceled_at) AS canceled_at,
    max_by(cancellation_reason, struct(updated_at, event_id)) FILTER (WHERE cancellation_reason IS NOT NULL)
        AS cancellation_reason,
    min(created_at) AS started_at,
    max(updated_at) AS updated_at
FROM payments_db.payment_subscriptions_cleaned
GROUP BY subscription_id
