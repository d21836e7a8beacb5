/*
about: Each subscription event once, with one word for each interval and the providers' statuses in common words.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the event has an id: {that: event_id IS NOT NULL, on_failure: quarantine}
  the event has a subscription: {that: subscription_id IS NOT NULL, on_failure: quarantine}
  the event has a time: {that: created_at IS NOT NULL, on_failure: quarantine}
  the amount is not negative: {that: amount >= 0, on_failure: quarantine}
  the provider is one we know: "provider IN ('STRIPE', 'BRAINTREE', 'ADYEN')"
  the status is one we know: common_status <> 'unknown'
  the interval is one we know: "plan_interval IN ('day', 'week', 'month', 'year')"
  the currency is in ISO 4217: currency IS NOT NULL
  a trial has dates: coalesce(trial_days, 0) = 0 OR trial_start IS NOT NULL
  a coupon has its promo code: coupon_id IS NULL OR promo_code IS NOT NULL
*/
-- Trial dates and promo codes that only other events of the subscription know, the table subscriptions fills in.
WITH subscriptions AS (
    SELECT *, null_spellings() AS nothing
    FROM payments_db.payment_subscriptions
),

spelled AS (
    SELECT
        clean_text(event_id, nothing) AS event_id,
        clean_lower(event_type, nothing) AS event_type,
        clean_upper(provider, nothing) AS provider,
        clean_text(subscription_id, nothing) AS subscription_id,
        clean_text(customer_id, nothing) AS customer_id,
        clean_text(status, nothing) AS status,
        clean_text(plan_id, nothing) AS plan_id,
        clean_text(plan_name, nothing) AS plan_name,
        clean_lower(plan_interval, nothing) AS plan_interval,
        interval_count,
        quantity,
        amount,
        upper(trim(currency)) AS currency,
        trial_days,
        -- A trial begins with the subscription, so the event that creates it knows both of its ends.
        coalesce(trial_start, IF(trial_days > 0 AND lower(trim(event_type)) = 'subscription.created', created_at, NULL))
            AS trial_start,
        trial_end,
        current_period_start,
        current_period_end,
        clean_text(coupon_id, nothing) AS coupon_id,
        clean_upper(promo_code, nothing) AS promo_code,
        discount_percent,
        cancel_at_period_end,
        canceled_at,
        clean_lower(cancellation_reason, nothing) AS cancellation_reason,
        clean_text(merchant_id, nothing) AS merchant_id,
        clean_lower(metadata.user_email, nothing) AS user_email,
        clean_lower(metadata.signup_channel, nothing) AS signup_channel,
        clean_text(metadata.previous_plan_id, nothing) AS previous_plan_id,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM subscriptions
)

SELECT
    spelled.event_id,
    spelled.event_type,
    spelled.provider,
    spelled.subscription_id,
    spelled.customer_id,
    spelled.status,
    spelled.plan_id,
    spelled.plan_name,
    CASE
        WHEN spelled.plan_interval IN ('day', 'daily', '1 day') THEN 'day'
        WHEN spelled.plan_interval IN ('week', 'weekly', '1 week', '7 days') THEN 'week'
        WHEN spelled.plan_interval IN ('month', 'monthly', '1 month', 'mo') THEN 'month'
        WHEN spelled.plan_interval IN ('year', 'yearly', 'annual', 'annually', '1 year', '12 months') THEN 'year'
    END AS plan_interval,
    spelled.interval_count,
    spelled.quantity,
    spelled.amount,
    iso_currency.code AS currency,
    spelled.trial_days,
    spelled.trial_start,
    coalesce(spelled.trial_end, spelled.trial_start + spelled.trial_days * INTERVAL 1 DAY) AS trial_end,
    spelled.current_period_start,
    spelled.current_period_end,
    spelled.coupon_id,
    spelled.promo_code,
    spelled.discount_percent,
    spelled.cancel_at_period_end,
    spelled.canceled_at,
    spelled.cancellation_reason,
    spelled.merchant_id,
    spelled.user_email,
    spelled.signup_channel,
    spelled.previous_plan_id,
    spelled.created_at,
    spelled.updated_at,
    CASE
        WHEN lower(spelled.status) IN ('trialing', 'trial') THEN 'trialing'
        WHEN lower(spelled.status) = 'active' THEN 'active'
        WHEN lower(spelled.status) IN ('past_due', 'past due', 'overdue') THEN 'past_due'
        WHEN lower(spelled.status) IN ('canceled', 'cancelled') THEN 'canceled'
        ELSE 'unknown'
    END AS common_status,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN payments_db.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
