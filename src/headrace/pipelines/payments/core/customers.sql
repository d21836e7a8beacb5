/*
about: Each customer as charges and subscriptions tell of them - the newest value of everything that was ever known.
keys: [customer_id]
expect:
  there is an email address: email IS NOT NULL
  the country is known: country IS NOT NULL
*/
-- Nothing here moves with every event, so that charges are joined again only when something about their customer changed;
-- what moves is in customer_days.
WITH known AS (
    SELECT
        customer_id,
        last_seen_at AS at,
        '' AS source,
        email,
        country,
        postal_code,
        payment_method_type,
        card_brand,
        card_country,
        CAST(NULL AS STRING) AS signup_channel,
        first_seen_at
    FROM payments_db.customer_days
    UNION ALL
    SELECT
        customer_id,
        updated_at AS at,
        subscription_id AS source,
        email,
        CAST(NULL AS STRING) AS country,
        CAST(NULL AS STRING) AS postal_code,
        CAST(NULL AS STRING) AS payment_method_type,
        CAST(NULL AS STRING) AS card_brand,
        CAST(NULL AS STRING) AS card_country,
        signup_channel,
        started_at AS first_seen_at
    FROM payments_db.subscriptions
)

SELECT
    customer_id,
    max_by(email, struct(at, source)) FILTER (WHERE email IS NOT NULL) AS email,
    max_by(country, at) FILTER (WHERE country IS NOT NULL) AS country,
    max_by(postal_code, at) FILTER (WHERE postal_code IS NOT NULL) AS postal_code,
    max_by(payment_method_type, at) FILTER (WHERE payment_method_type IS NOT NULL) AS payment_method_type,
    max_by(card_brand, at) FILTER (WHERE card_brand IS NOT NULL) AS card_brand,
    max_by(card_country, at) FILTER (WHERE card_country IS NOT NULL) AS card_country,
    min_by(signup_channel, struct(first_seen_at, source)) FILTER (WHERE signup_channel IS NOT NULL) AS signup_channel,
    min(first_seen_at) AS first_seen_at
FROM known
WHERE customer_id IS NOT NULL
GROUP BY customer_id
