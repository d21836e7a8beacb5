/*
about: What each customer has bought so far, by currency, and kept.
keys: [customer_id, currency]
rebuild_on:
  shape.storefront.customers: {id: customer_id}
expect:
  the customer is known: full_name IS NOT NULL
*/
SELECT
    CAST(placed.customer_id AS STRING) AS customer_id,
    placed.currency,
    max(customer.full_name) AS full_name,
    max(customer.tier) AS tier,
    count(*) AS order_count,
    count_if(placed.status = 'cancelled') AS cancelled_order_count,
    count_if(placed.status = 'returned') AS returned_order_count,
    CAST(coalesce(sum(placed.total) FILTER (WHERE placed.status NOT IN ('pending', 'cancelled')), 0) AS DECIMAL(28, 2))
        AS gross_amount,
    CAST(
        coalesce(sum(placed.total) FILTER (WHERE placed.status NOT IN ('pending', 'cancelled', 'returned')), 0)
        AS DECIMAL(28, 2)
    ) AS net_amount,
    min(placed.created_at) AS first_order_at,
    max(placed.created_at) AS last_order_at
FROM shape.storefront.orders AS placed
LEFT JOIN shape.storefront.customers AS customer ON customer.id = placed.customer_id
GROUP BY CAST(placed.customer_id AS STRING), placed.currency
