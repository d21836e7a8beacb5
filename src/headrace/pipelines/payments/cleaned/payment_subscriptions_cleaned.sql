/*
about: Each subscription event once, with one word for each interval and the providers' statuses in common words.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the event has an id: {that: event_id IS NOT NULL, otherwise: quarantine}
  the event has a subscription: {that: subscription_id IS NOT NULL, otherwise: quarantine}
  the event has a time: {that: created_at IS NOT NULL, otherwise: quarantine}
  the amount is not negative: {that: amount >= 0, otherwise: quarantine}
  the provider is one we know: "provider IN ('STRIPE', 'BRAINTREE', 'ADYEN')"
  the status is one we know: common_status <> 'unknown'
  the interval is one we know: "plan_interval IN ('day', 'week', 'month', 'year')"
  the currency is in ISO 4217: currency IS NOT NULL
  a trial has dates: coalesce(trial_days, 0) = 0 OR trial_start IS NOT NULL
  a coupon has its promo code: coupon_id IS NULL OR promo_code IS NOT NULL
*/
-- Trial dates and promo codes that only other events of the subscription know, the table subscriptions fills in.
WITH subscriptions AS (
    SELECT *, array('', 'null', 'none', 'nil', 'nan', 'n/a', 'undefined') AS nothing
    FROM payments_db.payment_subscriptions
),

spelled AS (
    SELECT
        IF(array_contains(nothing, lower(trim(event_id))), NULL, trim(event_id)) AS event_id,
        IF(array_contains(nothing, lower(trim(event_type))), NULL, lower(trim(event_type))) AS event_type,
        IF(array_contains(nothing, lower(trim(provider))), NULL, upper(trim(provider))) AS provider,
        IF(array_contains(nothing, lower(trim(subscription_id))), NULL, trim(subscription_id)) AS subscription_id,
        IF(array_contains(nothing, lower(trim(customer_id))), NULL, trim(customer_id)) AS customer_id,
        IF(array_contains(nothing, lower(trim(status))), NULL, trim(status)) AS status,
        IF(array_contains(nothing, lower(trim(plan_id))), NULL, trim(plan_id)) AS plan_id,
        IF(array_contains(nothing, lower(trim(plan_name))), NULL, trim(plan_name)) AS plan_name,
        IF(array_contains(nothing, lower(trim(plan_interval))), NULL, lower(trim(plan_interval))) AS plan_interval,
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
        IF(array_contains(nothing, lower(trim(coupon_id))), NULL, trim(coupon_id)) AS coupon_id,
        IF(array_contains(nothing, lower(trim(promo_code))), NULL, upper(trim(promo_code))) AS promo_code,
        discount_percent,
        cancel_at_period_end,
        canceled_at,
        IF(array_contains(nothing, lower(trim(cancellation_reason))), NULL, lower(trim(cancellation_reason)))
            AS cancellation_reason,
        IF(array_contains(nothing, lower(trim(merchant_id))), NULL, trim(merchant_id)) AS merchant_id,
        IF(array_contains(nothing, lower(trim(metadata.user_email))), NULL, lower(trim(metadata.user_email))) AS user_email,
        IF(array_contains(nothing, lower(trim(metadata.signup_channel))), NULL, lower(trim(metadata.signup_channel)))
            AS signup_channel,
        IF(array_contains(nothing, lower(trim(metadata.previous_plan_id))), NULL, trim(metadata.previous_plan_id))
            AS previous_plan_id,
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
