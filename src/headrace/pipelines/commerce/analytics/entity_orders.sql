/*
about: Each order and the person that it belongs to. When two people turn out to be one, their orders move.
keys: [order_id]
partition_by: [months(order_date)]
rebuild_on:
  semantic.entity_index: [source_id]
expect:
  the person is in the entity index: is_in_index
*/
-- The tables on top of this one go by entity_id: they find a person's orders in the old place and in the new one, because both rows
-- of an order that moved are here. An order of a customer whom the shop has deleted belongs to someone of its own.
SELECT
    placed.order_id,
    coalesce(person.entity_id, concat('shopify:', placed.source_id)) AS entity_id,
    person.entity_id IS NOT NULL AS is_in_index,
    placed.customer_id IS NULL AS is_guest,
    -- XXX is what ISO 4217 calls no currency.
    coalesce(placed.currency, 'XXX') AS currency,
    placed.total_amount,
    placed.subtotal_amount,
    placed.tax_amount,
    placed.discount_amount,
    placed.shipping_amount,
    placed.line_item_count,
    placed.financial_status,
    placed.is_paid,
    placed.is_fulfilled,
    placed.is_cancelled,
    placed.shipping_country,
    placed.order_date,
    placed.created_at,
    placed.updated_at
FROM staging.stg_shopify_orders AS placed
LEFT JOIN semantic.entity_index AS person ON person.source = 'shopify' AND person.source_id = placed.source_id
