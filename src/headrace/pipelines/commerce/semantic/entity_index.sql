/*
about: Which records of the shop, of Stripe and of HubSpot are one customer, told by the same email address or phone.
kind: entities
keys: [source, source_id]
sequence_by: updated_at
oldest_by: created_at
match:
  email_normalized: {from: email, as: email}
  phone_normalized: {from: phone, as: phone, region: country, max_records: 10}
except_column_list: [country]
expect:
  there is something to match by: email IS NOT NULL OR phone IS NOT NULL
*/
-- Guests are records of their own: an order without a customer, a charge without one. A phone that more than ten records have is
-- nobody's: a shop writes down its own for those who give none.
SELECT
    'shopify' AS source,
    customer_id AS source_id,
    email,
    phone,
    first_name,
    last_name,
    full_name,
    country,
    created_at,
    updated_at
FROM staging.stg_shopify_customers
UNION ALL
SELECT
    'shopify' AS source,
    source_id,
    email,
    phone,
    first_name,
    last_name,
    full_name,
    coalesce(billing_country, shipping_country) AS country,
    created_at,
    updated_at
FROM staging.stg_shopify_orders
WHERE customer_id IS NULL
UNION ALL
SELECT
    'stripe' AS source,
    customer_id AS source_id,
    email,
    phone,
    first_name,
    last_name,
    full_name,
    country,
    created_at,
    updated_at
FROM staging.stg_stripe_customers
UNION ALL
SELECT
    'stripe' AS source,
    source_id,
    coalesce(billing_email, receipt_email) AS email,
    billing_phone AS phone,
    CAST(NULL AS STRING) AS first_name,
    CAST(NULL AS STRING) AS last_name,
    billing_name AS full_name,
    country,
    created_at,
    updated_at
FROM staging.stg_stripe_charges
WHERE customer_id IS NULL
UNION ALL
SELECT
    'hubspot' AS source,
    contact_id AS source_id,
    email,
    phone,
    first_name,
    last_name,
    full_name,
    country,
    created_at,
    updated_at
FROM staging.stg_hubspot_contacts
