/*
about: Each order of the shop as it stands now, whatever came twice or in the wrong order; deleted ones are gone.
keys: [order_id]
sequence_by: _version
apply_as_deletes: is_deletion
partition_by: [months(order_date)]
except_column_list: [is_deletion, exact_amount, kafka_topic, kafka_partition, kafka_offset]
expect:
  the order has an id: {that: order_id IS NOT NULL, otherwise: quarantine}
  the order has a time: {that: is_deletion OR created_at IS NOT NULL, otherwise: quarantine}
  the total is an amount: {that: is_deletion OR total_amount >= 0, otherwise: quarantine}
  the total has no more than two decimals: {that: is_deletion OR exact_amount = total_amount, otherwise: quarantine}
  the currency is in ISO 4217: is_deletion OR currency IS NOT NULL
  the email address has an @: "email IS NULL OR email LIKE '_%@_%'"
  the financial status is one we know: "is_deletion OR financial_status IN ('pending', 'authorized', 'partially_paid', 'paid', 'partially_refunded', 'refunded', 'voided', 'expired')"
  the total is what its parts add up to: is_deletion OR subtotal_amount + tax_amount + shipping_amount = total_amount
  the order was made before it was changed: is_deletion OR created_at <= updated_at
*/
-- Shopify tells times to the second, so two states can have the same: then the one further in the order's life counts. It gives no
-- id twice, so what is deleted stays so. Money is in the shop's currency. Guests have no customer_id.
WITH orders AS (
    SELECT *, array('', 'null', 'none', 'nil', 'nan', 'n/a', 'undefined') AS nothing
    FROM raw.shopify_orders
),

spelled AS (
    SELECT
        IF(array_contains(nothing, lower(trim(id))), NULL, trim(id)) AS order_id,
        order_number,
        get_json_object(customer, '$.id') AS customer_id,
        filter(
            array(trim(email), trim(get_json_object(customer, '$.email'))),
            each -> NOT array_contains(nothing, lower(each))
        ) AS emails,
        filter(
            array(
                trim(phone),
                trim(get_json_object(customer, '$.phone')),
                trim(get_json_object(shipping_address, '$.phone')),
                trim(get_json_object(billing_address, '$.phone'))
            ),
            each -> NOT array_contains(nothing, lower(each))
        ) AS phones,
        filter(
            array(
                trim(get_json_object(customer, '$.first_name')),
                trim(get_json_object(billing_address, '$.first_name')),
                trim(get_json_object(shipping_address, '$.first_name'))
            ),
            each -> NOT array_contains(nothing, lower(each))
        ) AS first_names,
        filter(
            array(
                trim(get_json_object(customer, '$.last_name')),
                trim(get_json_object(billing_address, '$.last_name')),
                trim(get_json_object(shipping_address, '$.last_name'))
            ),
            each -> NOT array_contains(nothing, lower(each))
        ) AS last_names,
        try_cast(trim(total_price) AS DECIMAL(38, 12)) AS exact_amount,
        try_cast(trim(total_price) AS DECIMAL(18, 2)) AS total_amount,
        try_cast(trim(subtotal_price) AS DECIMAL(18, 2)) AS subtotal_amount,
        try_cast(trim(total_tax) AS DECIMAL(18, 2)) AS tax_amount,
        try_cast(trim(total_discounts) AS DECIMAL(18, 2)) AS discount_amount,
        try_cast(trim(get_json_object(total_shipping_price_set, '$.shop_money.amount')) AS DECIMAL(18, 2)) AS shipping_amount,
        upper(trim(currency)) AS currency,
        json_array_length(line_items) AS line_item_count,
        IF(array_contains(nothing, lower(trim(financial_status))), NULL, lower(trim(financial_status))) AS financial_status,
        IF(array_contains(nothing, lower(trim(fulfillment_status))), NULL, lower(trim(fulfillment_status)))
            AS fulfillment_status,
        nullif(trim(get_json_object(shipping_address, '$.city')), '') AS shipping_city,
        nullif(trim(get_json_object(shipping_address, '$.province_code')), '') AS shipping_state,
        nullif(upper(trim(get_json_object(shipping_address, '$.country_code'))), '') AS shipping_country,
        nullif(trim(get_json_object(billing_address, '$.city')), '') AS billing_city,
        nullif(trim(get_json_object(billing_address, '$.province_code')), '') AS billing_state,
        nullif(upper(trim(get_json_object(billing_address, '$.country_code'))), '') AS billing_country,
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
    spelled.exact_amount,
    spelled.kafka_topic,
    spelled.kafka_partition,
    spelled.kafka_offset
FROM spelled
LEFT JOIN reference.iso_currencies AS iso_currency ON iso_currency.code = spelled.currency
