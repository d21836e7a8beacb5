/*
about: Each charge, what of it was taken and given back, and the person that it belongs to.
keys: [charge_id]
partition_by: [months(created_at)]
rebuild_on:
  semantic.entity_index: [source_id]
expect:
  the person is in the entity index: is_in_index
*/
-- Taken is what was captured of a charge that succeeded: an authorisation alone takes nothing, and neither does what failed. Given
-- back is what Stripe refunded of it until now. A dispute moves nothing here, since Stripe tells of its money elsewhere.
SELECT
    charge.charge_id,
    coalesce(person.entity_id, concat('stripe:', charge.source_id)) AS entity_id,
    person.entity_id IS NOT NULL AS is_in_index,
    charge.order_id,
    charge.currency,
    charge.status,
    charge.amount,
    CAST(IF(charge.status = 'succeeded', coalesce(charge.amount_captured, 0), 0) AS DECIMAL(18, 3)) AS charged_amount,
    CAST(IF(charge.status = 'succeeded', coalesce(charge.amount_refunded, 0), 0) AS DECIMAL(18, 3)) AS refunded_amount,
    charge.is_disputed,
    charge.failure_code,
    coalesce(charge.payment_method_type, 'unknown') AS payment_method_type,
    charge.created_at,
    charge.updated_at
FROM staging.stg_stripe_charges AS charge
LEFT JOIN semantic.entity_index AS person ON person.source = 'stripe' AND person.source_id = charge.source_id
