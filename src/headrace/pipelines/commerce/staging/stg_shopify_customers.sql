/*
about: Each customer of the shop as they are now, also those whom only an order tells of; deleted ones are gone.
keys: [customer_id]
sequence_by: _version
apply_as_deletes: is_deletion
except_column_list: [is_deletion, kafka_topic, kafka_partition, kafka_offset]
expect:
  the customer has an id: {that: customer_id IS NOT NULL, on_failure: quarantine}
  the customer has a time: {that: is_deletion OR updated_at IS NOT NULL, on_failure: quarantine}
  the email address has an @: "email IS NULL OR email LIKE '_%@_%'"
  there is an email address or a phone: is_deletion OR email IS NOT NULL OR phone IS NOT NULL
  what was spent is an amount: told_by = 'order' OR is_deletion OR total_spent >= 0
*/
-- What Shopify says of a customer counts before what it says of them in an order; of two states of the same second, the update.
WITH told AS (
    SELECT
        id AS customer_id,
        email,
        phone,
        first_name,
        last_name,
        default_address AS address,
        state AS account_state,
        orders_count,
        total_spent,
        currency,
        verified_email AS is_email_verified,
        tags,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        'customer' AS told_by,
        _webhook_topic = 'customers/delete' AS is_deletion,
        _webhook_topic <> 'customers/create' AS is_change,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.shopify_customers
    UNION ALL
    SELECT
        get_json_object(customer, '$.id') AS customer_id,
        coalesce(get_json_object(customer, '$.email'), email) AS email,
        coalesce(get_json_object(customer, '$.phone'), phone) AS phone,
        get_json_object(customer, '$.first_name') AS first_name,
        get_json_object(customer, '$.last_name') AS last_name,
        coalesce(get_json_object(customer, '$.default_address'), billing_address) AS address,
        get_json_object(customer, '$.state') AS account_state,
        CAST(NULL AS BIGINT) AS orders_count,
        CAST(NULL AS STRING) AS total_spent,
        get_json_object(customer, '$.currency') AS currency,
        try_cast(get_json_object(customer, '$.verified_email') AS BOOLEAN) AS is_email_verified,
        get_json_object(customer, '$.tags') AS tags,
        coalesce(try_cast(get_json_object(customer, '$.created_at') AS TIMESTAMP), created_at) AS created_at,
        coalesce(updated_at, created_at) AS updated_at,
        'order' AS told_by,
        false AS is_deletion,
        true AS is_change,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.shopify_orders
    WHERE get_json_object(customer, '$.id') IS NOT NULL
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
        clean_text(first_name, no_name, blanks) AS first_name,
        clean_text(last_name, no_name, blanks) AS last_name,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.city')), '') AS city,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.province_code')), '') AS state,
        nullif(upper(trim(BOTH blanks FROM get_json_object(address, '$.country_code'))), '') AS country,
        nullif(trim(BOTH blanks FROM get_json_object(address, '$.zip')), '') AS postal_code,
        clean_lower(account_state, nothing, blanks) AS account_state,
        is_email_verified,
        orders_count,
        -- Never rounded: what has more than three decimals is no amount.
        IF(
            try_cast(trim(BOTH blanks FROM total_spent) AS DECIMAL(19, 3))
            = try_cast(trim(BOTH blanks FROM total_spent) AS DECIMAL(38, 18)),
            try_cast(trim(BOTH blanks FROM total_spent) AS DECIMAL(19, 3)),
            NULL
        ) AS total_spent,
        nullif(upper(trim(BOTH blanks FROM currency)), '') AS currency,
        array_sort(array_distinct(
            filter(
                transform(split(coalesce(tags, ''), ','), each -> lower(trim(BOTH blanks FROM each))),
                each -> NOT array_contains(nothing, each)
            )
        )) AS tags,
        told_by,
        is_deletion,
        is_change,
        created_at,
        updated_at,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM spelled
)

SELECT
    customer_id,
    email,
    phone,
    first_name,
    last_name,
    nullif(concat_ws(' ', first_name, last_name), '') AS full_name,
    city,
    state,
    country,
    postal_code,
    account_state,
    is_email_verified,
    orders_count,
    total_spent,
    currency,
    tags,
    told_by,
    created_at,
    updated_at,
    _event_id AS _raw_id,
    _loaded_at AS _staged_at,
    struct(
        is_deletion AS is_deletion,
        told_by = 'customer' AS is_own,
        updated_at AS at,
        is_change AS is_change
    ) AS _version,
    is_deletion,
    kafka_topic,
    kafka_partition,
    kafka_offset
FROM cleaned
