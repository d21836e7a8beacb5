/*
about: Each customer of Stripe as they are now, also those whom only a charge tells of; deleted ones are marked, for their charges stay.
keys: [customer_id]
sequence_by: _version
except_column_list: [kafka_topic, kafka_partition, kafka_offset]
expect:
  the customer has an id: {that: customer_id IS NOT NULL, on_failure: quarantine}
  the customer has a time: {that: updated_at IS NOT NULL, on_failure: quarantine}
  the email address has an @: "email IS NULL OR email LIKE '_%@_%'"
  there is an email address or a phone: email IS NOT NULL OR phone IS NOT NULL
*/
-- What Stripe says of a customer counts before what it says of them in a charge, and nobody comes back who was deleted.
WITH told AS (
    SELECT
        id AS customer_id,
        email,
        phone,
        name AS full_name,
        address,
        description,
        currency,
        balance,
        delinquent AS is_delinquent,
        coalesce(deleted, false) OR _webhook_topic = 'customer.deleted' AS is_deleted,
        _webhook_topic <> 'customer.created' AS is_change,
        created AS created_at,
        coalesce(event_created, created) AS updated_at,
        'customer' AS told_by,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.stripe_customers
    UNION ALL
    SELECT
        coalesce(get_json_object(customer, '$.id'), customer) AS customer_id,
        -- Where the charge has the whole customer instead of the id, that counts before what the card's holder typed in.
        coalesce(
            get_json_object(customer, '$.email'), get_json_object(billing_details, '$.email'), receipt_email
        ) AS email,
        coalesce(get_json_object(customer, '$.phone'), get_json_object(billing_details, '$.phone')) AS phone,
        coalesce(get_json_object(customer, '$.name'), get_json_object(billing_details, '$.name')) AS full_name,
        coalesce(get_json_object(customer, '$.address'), get_json_object(billing_details, '$.address')) AS address,
        CAST(NULL AS STRING) AS description,
        CAST(NULL AS STRING) AS currency,
        CAST(NULL AS BIGINT) AS balance,
        CAST(NULL AS BOOLEAN) AS is_delinquent,
        coalesce(try_cast(get_json_object(customer, '$.deleted') AS BOOLEAN), false) AS is_deleted,
        true AS is_change,
        created AS created_at,
        coalesce(event_created, created) AS updated_at,
        'charge' AS told_by,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.stripe_charges
    WHERE customer IS NOT NULL
),

spelled AS (
    SELECT
        *,
        null_spellings() AS nothing,
        no_name_spellings() AS no_name,
        blank_signs() AS blanks
    FROM told
),

cleaned AS (
    SELECT
        clean_text(customer_id, nothing, blanks) AS customer_id,
        clean_text(email, nothing, blanks) AS email,
        clean_text(phone, nothing, blanks) AS phone,
        IF(
            is_null_text(trim(BOTH blanks FROM full_name), no_name),
            NULL,
            regexp_replace(trim(BOTH blanks FROM full_name), '\\s+', ' ')
        ) AS full_name,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.city')), '') AS city,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.state')), '') AS state,
        nullif(upper(trim(BOTH blanks FROM get_json_object(address, '$.country'))), '') AS country,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.postal_code')), '') AS postal_code,
        clean_text(description, nothing, blanks) AS description,
        nullif(upper(trim(BOTH blanks FROM currency)), '') AS currency,
        balance,
        is_delinquent,
        is_deleted,
        is_change,
        told_by,
        created_at,
        updated_at,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM spelled
    WHERE told_by = 'customer' OR NOT is_null_text(trim(BOTH blanks FROM customer_id), nothing)
)

SELECT
    customer_id,
    email,
    phone,
    full_name,
    -- Stripe has one field for the name: its last word is taken for the family's.
    IF(full_name LIKE '% %', substring(full_name, 1, length(full_name) - length(split_part(full_name, ' ', -1)) - 1), full_name)
        AS first_name,
    IF(full_name LIKE '% %', split_part(full_name, ' ', -1), NULL) AS last_name,
    city,
    state,
    country,
    postal_code,
    description,
    currency,
    -- In the currency's smallest unit, as Stripe tells it; what Stripe owes the customer is below zero.
    balance,
    is_delinquent,
    is_deleted,
    told_by,
    created_at,
    updated_at,
    _event_id AS _raw_id,
    _loaded_at AS _staged_at,
    struct(
        told_by = 'customer' AS is_own,
        is_deleted AS is_deleted,
        updated_at AS at,
        is_change AS is_change
    ) AS _version,
    kafka_topic,
    kafka_partition,
    kafka_offset
FROM cleaned
