/*
about: Each order of the shop as it stands now, whatever came twice or in the wrong order; deleted ones are gone.
keys: [order_id]
sequence_by: _version
apply_as_deletes: is_deletion
partition_by: [months(order_date)]
except_column_list: [is_deletion, is_number, is_negative, is_exact, smallest_unit, kafka_topic, kafka_partition, kafka_offset]
expect:
  the order has an id: {that: order_id IS NOT NULL, on_failure: quarantine}
  the order has a time: {that: is_deletion OR created_at IS NOT NULL, on_failure: quarantine}
  the total is an amount: {that: is_deletion OR (is_number AND NOT is_negative), on_failure: quarantine}
  each amount has at most 16 digits before the point and 3 after it: {that: is_deletion OR is_exact, on_failure: quarantine}
  the total has no more decimals than its currency:
    that: is_deletion OR NOT is_exact OR coalesce(total_amount % smallest_unit = 0, true)
    on_failure: quarantine
  the currency is in ISO 4217: is_deletion OR currency IS NOT NULL
  the email address has an @: "email IS NULL OR email LIKE '_%@_%'"
  the financial status is one we know: "is_deletion OR financial_status IN ('pending', 'authorized', 'partially_paid', 'paid', 'partially_refunded', 'refunded', 'voided', 'expired')"
  the total is what its parts add up to: is_deletion OR NOT is_exact OR subtotal_amount + tax_amount + shipping_amount = total_amount
  the order was made before it was changed: is_deletion OR created_at <= updated_at
*/
-- Shopify tells times to the second, so two states can have the same: then the one further in the order's life counts. It gives no
-- id twice, so what is deleted stays so. Money is in the shop's currency. Guests have no customer_id.
WITH orders AS (
    SELECT
        *,
        null_spellings() AS nothing,
        no_name_spellings() AS no_name,
        blank_signs() AS blanks,
        '^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([eE][+-]?[0-9]+)?$' AS number_pattern,
        array(
            total_price,
            subtotal_price,
            total_tax,
            total_discounts,
            get_json_object(total_shipping_price_set, '$.shop_money.amount')
        ) AS amounts
    FROM raw.shopify_orders
),

spelled AS (
    SELECT
        clean_text(id, nothing, blanks) AS order_id,
        order_number,
        get_json_object(customer, '$.id') AS customer_id,
        filter(
            array(trim(BOTH blanks FROM email), trim(BOTH blanks FROM get_json_object(customer, '$.email'))),
            each -> NOT is_null_text(each, nothing)
        ) AS emails,
        filter(
            array(
                trim(BOTH blanks FROM phone),
                trim(BOTH blanks FROM get_json_object(customer, '$.phone')),
                trim(BOTH blanks FROM get_json_object(shipping_address, '$.phone')),
                trim(BOTH blanks FROM get_json_object(billing_address, '$.phone'))
            ),
            each -> NOT is_null_text(each, nothing)
        ) AS phones,
        filter(
            array(
                trim(BOTH blanks FROM get_json_object(customer, '$.first_name')),
                trim(BOTH blanks FROM get_json_object(billing_address, '$.first_name')),
                trim(BOTH blanks FROM get_json_object(shipping_address, '$.first_name'))
            ),
            each -> NOT is_null_text(each, no_name)
        ) AS first_names,
        filter(
            array(
                trim(BOTH blanks FROM get_json_object(customer, '$.last_name')),
                trim(BOTH blanks FROM get_json_object(billing_address, '$.last_name')),
                trim(BOTH blanks FROM get_json_object(shipping_address, '$.last_name'))
            ),
            each -> NOT is_null_text(each, no_name)
        ) AS last_names,
        transform(amounts, each -> trim(BOTH blanks FROM each)) AS amounts,
        trim(BOTH blanks FROM total_price) RLIKE number_pattern AS is_number,
        number_pattern,
        try_cast(trim(BOTH blanks FROM total_price) AS DECIMAL(19, 3)) AS total_amount,
        try_cast(trim(BOTH blanks FROM subtotal_price) AS DECIMAL(19, 3)) AS subtotal_amount,
        try_cast(trim(BOTH blanks FROM total_tax) AS DECIMAL(19, 3)) AS tax_amount,
        try_cast(trim(BOTH blanks FROM total_discounts) AS DECIMAL(19, 3)) AS discount_amount,
        try_cast(
            trim(BOTH blanks FROM get_json_object(total_shipping_price_set, '$.shop_money.amount')) AS DECIMAL(19, 3)
        ) AS shipping_amount,
        upper(trim(BOTH blanks FROM currency)) AS currency,
        json_array_length(line_items) AS line_item_count,
        clean_lower(financial_status, nothing, blanks) AS financial_status,
        clean_lower(fulfillment_status, nothing, blanks) AS fulfillment_status,
        nullif(trim(BOTH blanks FROM get_json_object(shipping_address, '$.city')), '') AS shipping_city,
        nullif(trim(BOTH blanks FROM get_json_object(shipping_address, '$.province_code')), '') AS shipping_state,
        nullif(upper(trim(BOTH blanks FROM get_json_object(shipping_address, '$.country_code'))), '') AS shipping_country,
        nullif(trim(BOTH blanks FROM get_json_object(billing_address, '$.city')), '') AS billing_city,
        nullif(trim(BOTH blanks FROM get_json_object(billing_address, '$.province_code')), '') AS billing_state,
        nullif(upper(trim(BOTH blanks FROM get_json_object(billing_address, '$.country_code'))), '') AS billing_country,
        created_at,
        coalesce(updated_at, created_at) AS updated_at,
        cancelled_at,
        _webhook_topic = 'orders/delete' AS is_deletion,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM orders
)

SELECT
    spelled.order_id,
    spelled.order_number,
    spelled.customer_id,
    get(spelled.emails, 0) AS email,
    spelled.total_amount,
    spelled.subtotal_amount,
    spelled.tax_amount,
    spelled.discount_amount,
    spelled.shipping_amount,
    iso_currency.code AS currency,
    spelled.line_item_count,
    spelled.financial_status,
    spelled.fulfillment_status,
    -- Paid is what the customer paid in full, whatever was given back later.
    coalesce(spelled.financial_status IN ('paid', 'partially_refunded', 'refunded'), false) AS is_paid,
    coalesce(spelled.fulfillment_status = 'fulfilled', false) AS is_fulfilled,
    spelled.shipping_city,
    spelled.shipping_state,
    spelled.shipping_country,
    spelled.billing_city,
    spelled.billing_state,
    spelled.billing_country,
    date(spelled.created_at) AS order_date,
    spelled.created_at,
    spelled.updated_at,
    spelled._event_id AS _raw_id,
    spelled._loaded_at AS _staged_at,
    -- Whose the order is in semantic.entity_index: a guest is known by this order alone.
    coalesce(spelled.customer_id, concat('guest:', spelled.order_id)) AS source_id,
    get(spelled.phones, 0) AS phone,
    get(spelled.first_names, 0) AS first_name,
    get(spelled.last_names, 0) AS last_name,
    nullif(concat_ws(' ', get(spelled.first_names, 0), get(spelled.last_names, 0)), '') AS full_name,
    spelled.cancelled_at,
    spelled.cancelled_at IS NOT NULL AS is_cancelled,
    struct(
        spelled.is_deletion AS is_deletion,
        spelled.updated_at AS at,
        spelled.cancelled_at IS NOT NULL AS is_cancelled,
        array_position(
            array('pending', 'authorized', 'partially_paid', 'paid', 'partially_refunded', 'refunded', 'voided'),
            spelled.financial_status
        ) AS financial_stage,
        array_position(array('partial', 'fulfilled'), spelled.fulfillment_status) AS fulfillment_stage
    ) AS _version,
    spelled.is_deletion,
    iso_currency.smallest_unit,
    spelled.is_number,
    coalesce(spelled.total_amount < 0, false) AS is_negative,
    -- What is no number at all is another matter; what is one must not be rounded.
    forall(
        filter(spelled.amounts, each -> each RLIKE spelled.number_pattern),
        each -> coalesce(try_cast(each AS DECIMAL(19, 3)) = try_cast(each AS DECIMAL(38, 18)), false)
    ) AS is_exact,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN reference.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
