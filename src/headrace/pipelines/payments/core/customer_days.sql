/*
about: What the charges of each day say of each customer, and how many there were.
keys: [customer_id, day]
partition_by: [months(day)]
*/
-- A step on the way to customers: a build reads the days that new charges are of, and not everything a customer ever did.
SELECT
    customer_id,
    date(created_at) AS day,
    max_by(user_email, struct(updated_at, event_id)) FILTER (WHERE user_email IS NOT NULL) AS email,
    max_by(billing_country, struct(updated_at, event_id)) FILTER (WHERE billing_country IS NOT NULL) AS country,
    max_by(billing_postal_code, struct(updated_at, event_id)) FILTER (WHERE billing_postal_code IS NOT NULL) AS postal_code,
    max_by(payment_method_type, struct(updated_at, event_id)) FILTER (WHERE payment_method_type IS NOT NULL)
        AS payment_method_type,
    max_by(card_brand, struct(updated_at, event_id)) FILTER (WHERE card_brand IS NOT NULL) AS card_brand,
    max_by(card_country, struct(updated_at, event_id)) FILTER (WHERE card_country IS NOT NULL) AS card_country,
    count(*) AS charges,
    count_if(common_status = 'failed') AS failed_charges,
    min(created_at) AS first_seen_at,
    max(created_at) AS last_seen_at
FROM payments_db.payment_charges_cleaned
WHERE customer_id IS NOT NULL
GROUP BY customer_id, date(created_at)
