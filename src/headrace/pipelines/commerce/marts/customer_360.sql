/*
about: One row for each person, whoever told of them - who they are, what they bought, paid and got back, and how far they are as a lead.
keys: [entity_id]
rebuild_on:
  staging.stg_hubspot_contacts: {contact_id: source_id}
  staging.stg_shopify_customers: {customer_id: source_id}
expect:
  there is a name: full_name IS NOT NULL
  there is an email address or a phone: size(emails) > 0 OR size(phones) > 0
*/
-- amounts has an entry for each currency, because money of different currencies is never added up; what its fields mean,
-- analytics.customer_metrics says. A name is taken from an account before a guest's order, and of several from the newest. What too
-- many share, such as the shop's own phone, is nobody's.
WITH facts AS (
    SELECT
        record.entity_id,
        record.source,
        record.source_id,
        IF(array_contains(record.unused_matches, 'email_normalized'), NULL, coalesce(record.email_normalized, record.email)) AS email,
        IF(array_contains(record.unused_matches, 'phone_normalized'), NULL, coalesce(record.phone_normalized, record.phone)) AS phone,
        record.first_name,
        record.last_name,
        record.full_name,
        record.match_confidence,
        record.previous_entity_ids,
        record.created_at,
        record.updated_at,
        NOT (record.source_id LIKE 'guest:%' OR record.source_id LIKE 'charge:%') AS is_account,
        contact.lifecycle_stage,
        contact.lead_status,
        contact.company,
        contact.job_title,
        shopper.city,
        shopper.state,
        shopper.country,
        shopper.tags,
        CAST(NULL AS STRUCT<
            currency: STRING, order_count: BIGINT, cancelled_order_count: BIGINT, paid_order_count: BIGINT,
            ordered_amount: DECIMAL(29, 3), cancelled_amount: DECIMAL(29, 3),
            charge_count: BIGINT, failed_charge_count: BIGINT, refunded_charge_count: BIGINT, disputed_charge_count: BIGINT,
            charged_amount: DECIMAL(28, 3), refunded_amount: DECIMAL(28, 3), net_amount: DECIMAL(28, 3),
            failed_amount: DECIMAL(28, 3)
        >) AS amounts,
        CAST(NULL AS TIMESTAMP) AS first_order_at,
        CAST(NULL AS TIMESTAMP) AS last_order_at,
        CAST(NULL AS TIMESTAMP) AS first_charge_at,
        CAST(NULL AS TIMESTAMP) AS last_charge_at
    FROM semantic.entity_index AS record
    LEFT JOIN staging.stg_hubspot_contacts AS contact ON record.source = 'hubspot' AND contact.contact_id = record.source_id
    LEFT JOIN staging.stg_shopify_customers AS shopper ON record.source = 'shopify' AND shopper.customer_id = record.source_id
    UNION ALL
    SELECT
        entity_id,
        CAST(NULL AS STRING) AS source,
        CAST(NULL AS STRING) AS source_id,
        CAST(NULL AS STRING) AS email,
        CAST(NULL AS STRING) AS phone,
        CAST(NULL AS STRING) AS first_name,
        CAST(NULL AS STRING) AS last_name,
        CAST(NULL AS STRING) AS full_name,
        CAST(NULL AS DECIMAL(5, 2)) AS match_confidence,
        CAST(NULL AS ARRAY<STRING>) AS previous_entity_ids,
        CAST(NULL AS TIMESTAMP) AS created_at,
        CAST(NULL AS TIMESTAMP) AS updated_at,
        CAST(NULL AS BOOLEAN) AS is_account,
        CAST(NULL AS STRING) AS lifecycle_stage,
        CAST(NULL AS STRING) AS lead_status,
        CAST(NULL AS STRING) AS company,
        CAST(NULL AS STRING) AS job_title,
        CAST(NULL AS STRING) AS city,
        CAST(NULL AS STRING) AS state,
        CAST(NULL AS STRING) AS country,
        CAST(NULL AS ARRAY<STRING>) AS tags,
        struct(
            currency,
            order_count,
            cancelled_order_count,
            paid_order_count,
            ordered_amount,
            cancelled_amount,
            charge_count,
            failed_charge_count,
            refunded_charge_count,
            disputed_charge_count,
            charged_amount,
            refunded_amount,
            CAST(net_amount AS DECIMAL(28, 3)) AS net_amount,
            failed_amount
        ) AS amounts,
        first_order_at,
        last_order_at,
        first_charge_at,
        last_charge_at
    FROM analytics.customer_metrics
)

SELECT
    entity_id,
    max_by(full_name, struct(is_account, updated_at, source, source_id)) FILTER (WHERE full_name IS NOT NULL) AS full_name,
    max_by(first_name, struct(is_account, updated_at, source, source_id)) FILTER (WHERE full_name IS NOT NULL) AS first_name,
    max_by(last_name, struct(is_account, updated_at, source, source_id)) FILTER (WHERE full_name IS NOT NULL) AS last_name,
    max_by(email, struct(is_account, updated_at, source, source_id)) FILTER (WHERE email IS NOT NULL) AS email,
    max_by(phone, struct(is_account, updated_at, source, source_id)) FILTER (WHERE phone IS NOT NULL) AS phone,
    array_sort(collect_set(email)) AS emails,
    array_sort(collect_set(phone)) AS phones,
    max_by(city, struct(updated_at, source_id)) FILTER (WHERE country IS NOT NULL) AS city,
    max_by(state, struct(updated_at, source_id)) FILTER (WHERE country IS NOT NULL) AS state,
    max_by(country, struct(updated_at, source_id)) FILTER (WHERE country IS NOT NULL) AS country,
    array_sort(array_distinct(flatten(collect_list(tags)))) AS tags,
    max_by(company, struct(updated_at, source_id)) FILTER (WHERE company IS NOT NULL) AS company,
    max_by(job_title, struct(updated_at, source_id)) FILTER (WHERE job_title IS NOT NULL) AS job_title,
    max_by(lifecycle_stage, struct(updated_at, source_id)) FILTER (WHERE lifecycle_stage IS NOT NULL) AS lifecycle_stage,
    max_by(lead_status, struct(updated_at, source_id)) FILTER (WHERE lead_status IS NOT NULL) AS lead_status,
    array_sort(collect_set(source)) AS sources,
    array_sort(collect_list(struct(source, source_id)) FILTER (WHERE source IS NOT NULL)) AS records,
    min(match_confidence) AS match_confidence,
    array_sort(array_distinct(flatten(collect_list(previous_entity_ids)))) AS previous_entity_ids,
    coalesce(sum(amounts.order_count), 0) AS order_count,
    coalesce(sum(amounts.cancelled_order_count), 0) AS cancelled_order_count,
    coalesce(sum(amounts.charge_count), 0) AS charge_count,
    coalesce(sum(amounts.failed_charge_count), 0) AS failed_charge_count,
    coalesce(sum(amounts.refunded_charge_count), 0) AS refunded_charge_count,
    coalesce(sum(amounts.disputed_charge_count), 0) AS disputed_charge_count,
    array_sort(collect_list(amounts)) AS amounts,
    min(first_order_at) AS first_order_at,
    max(last_order_at) AS last_order_at,
    min(first_charge_at) AS first_charge_at,
    max(last_charge_at) AS last_charge_at,
    least(min(created_at), min(first_order_at), min(first_charge_at)) AS first_seen_at,
    greatest(max(updated_at), max(last_order_at), max(last_charge_at)) AS last_seen_at
FROM facts
GROUP BY entity_id
