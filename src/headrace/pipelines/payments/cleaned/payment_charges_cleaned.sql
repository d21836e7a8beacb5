/*
about: Each charge event once, spelled alike whatever its provider wrote, with countries and currencies that exist.
keys: [event_id]
sequence_by: updated_at
partition_by: [days(created_at)]
constant: [created_at]
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the event has an id: {that: event_id IS NOT NULL, on_failure: quarantine}
  the event has a charge: {that: charge_id IS NOT NULL, on_failure: quarantine}
  the event has a time: {that: created_at IS NOT NULL, on_failure: quarantine}
  the amount is positive: {that: amount > 0, on_failure: quarantine}
  the provider is one we know: "provider IN ('STRIPE', 'BRAINTREE', 'ADYEN')"
  the status is one we know: common_status <> 'unknown'
  the currency is in ISO 4217: currency IS NOT NULL
  the billing country is in ISO 3166: billing_country IS NOT NULL
  the card's country is in ISO 3166: card_brand IS NULL OR card_country IS NOT NULL
  there is a postal code: billing_postal_code IS NOT NULL
  a failed charge says why: common_status <> 'failed' OR failure_category <> 'other'
  the risk score is from 0 to 100: risk_score BETWEEN 0 AND 100
*/
-- Where in Kafka the event was is kept of quarantined rows alone: so an event that was sent twice is the same row, and nothing
-- downstream moves.
WITH charges AS (
    SELECT *, null_spellings() AS nothing
    FROM payments_db.payment_charges
),

spelled AS (
    SELECT
        clean_text(event_id, nothing) AS event_id,
        clean_lower(event_type, nothing) AS event_type,
        clean_upper(provider, nothing) AS provider,
        clean_text(charge_id, nothing) AS charge_id,
        clean_text(customer_id, nothing) AS customer_id,
        amount,
        upper(trim(currency)) AS currency,
        clean_text(status, nothing) AS status,
        clean_text(failure_code, nothing) AS failure_code,
        upper(trim(card_country)) AS card_country,
        risk_score,
        clean_lower(risk_level, nothing) AS risk_level,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        clean_text(failure_message, nothing) AS failure_message,
        clean_text(payment_method_id, nothing) AS payment_method_id,
        clean_lower(payment_method_type, nothing) AS payment_method_type,
        clean_lower(card_brand, nothing) AS card_brand,
        clean_text(card_last4, nothing) AS card_last4,
        card_exp_month,
        card_exp_year,
        upper(trim(billing_country)) AS billing_country,
        clean_text(billing_postal_code, nothing) AS billing_postal_code,
        clean_text(merchant_id, nothing) AS merchant_id,
        clean_text(merchant_name, nothing) AS merchant_name,
        clean_text(description, nothing) AS description,
        clean_text(metadata.order_id, nothing) AS order_id,
        clean_lower(metadata.user_email, nothing) AS user_email,
        clean_text(metadata.subscription_id, nothing) AS subscription_id,
        try_cast(trim(`3ds_authenticated`) AS BOOLEAN) AS `3ds_authenticated`,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM charges
)

SELECT
    spelled.event_id,
    spelled.event_type,
    spelled.provider,
    spelled.charge_id,
    spelled.customer_id,
    spelled.amount,
    -- What a code that doesn't exist was meant to be is not guessed: it is null, and data_quality_issues has the event.
    iso_currency.code AS currency,
    spelled.status,
    spelled.failure_code,
    iso_card.alpha_2 AS card_country,
    spelled.risk_score,
    spelled.risk_level,
    spelled.created_at,
    spelled.updated_at,
    -- The providers' words for the same outcome never mean different ones, so one list does for all of them.
    CASE
        WHEN lower(spelled.status) IN ('succeeded', 'settled', 'settling', 'authorised', 'sentforsettle') THEN 'succeeded'
        WHEN lower(spelled.status) IN ('pending', 'submitted_for_settlement', 'received') THEN 'pending'
        WHEN lower(spelled.status) IN ('failed', 'processor_declined', 'gateway_rejected', 'refused', 'error') THEN 'failed'
        ELSE 'unknown'
    END AS common_status,
    -- Their codes do: what is 2000 for one is nothing for another.
    CASE
        WHEN spelled.failure_code IS NULL THEN NULL
        WHEN concat_ws(' ', spelled.provider, spelled.failure_code)
            IN ('STRIPE card_declined', 'BRAINTREE 2000', 'ADYEN 2') THEN 'declined'
        WHEN concat_ws(' ', spelled.provider, spelled.failure_code)
            IN ('STRIPE insufficient_funds', 'BRAINTREE 2001', 'ADYEN 12') THEN 'insufficient_funds'
        WHEN concat_ws(' ', spelled.provider, spelled.failure_code)
            IN ('STRIPE expired_card', 'BRAINTREE 2004', 'ADYEN 6') THEN 'expired_card'
        WHEN concat_ws(' ', spelled.provider, spelled.failure_code)
            IN ('STRIPE incorrect_cvc', 'BRAINTREE 2010', 'ADYEN 24') THEN 'incorrect_cvc'
        WHEN concat_ws(' ', spelled.provider, spelled.failure_code)
            IN ('STRIPE processing_error', 'BRAINTREE 3000', 'ADYEN 4') THEN 'processing_error'
        ELSE 'other'
    END AS failure_category,
    spelled.failure_message,
    spelled.payment_method_id,
    spelled.payment_method_type,
    spelled.card_brand,
    spelled.card_last4,
    spelled.card_exp_month,
    spelled.card_exp_year,
    iso_billing.alpha_2 AS billing_country,
    spelled.billing_postal_code,
    spelled.merchant_id,
    spelled.merchant_name,
    spelled.description,
    spelled.order_id,
    spelled.user_email,
    spelled.subscription_id,
    spelled.`3ds_authenticated`,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN payments_db.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
LEFT JOIN payments_db.iso_countries AS iso_card ON iso_card.alpha_2 = spelled.card_country
LEFT JOIN payments_db.iso_countries AS iso_billing ON iso_billing.alpha_2 = spelled.billing_country
