/*
about: How each product sells, by currency, and what customers say of it.
keys: [product_id, currency]
rebuild_on:
  shape.storefront.orders: {id: order_id}
  shape.storefront.products: {id: product_id}
  serve.storefront.product_ratings: {product_id: product_key}
*/
-- XXX is what ISO 4217 calls no currency: a line whose order is not here yet.
SELECT
    line.product_key AS product_id,
    coalesce(placed.currency, 'XXX') AS currency,
    max(product.sku) AS sku,
    max(product.name) AS name,
    max(product.price) AS price,
    max(product.stock) AS stock,
    count(DISTINCT line.order_id) AS order_count,
    CAST(coalesce(sum(line.quantity), 0) AS DECIMAL(28, 0)) AS units_ordered,
    CAST(coalesce(sum(line.quantity) FILTER (WHERE placed.status IN ('cancelled', 'returned')), 0) AS DECIMAL(28, 0))
        AS units_back,
    CAST(
        coalesce(sum(line.quantity * line.unit_price) FILTER (WHERE placed.status NOT IN ('pending', 'cancelled', 'returned')), 0)
        AS DECIMAL(28, 2)
    ) AS net_amount,
    coalesce(max(rating.review_count), 0) AS review_count,
    max(rating.average_rating) AS average_rating
FROM (SELECT *, CAST(product_id AS STRING) AS product_key FROM shape.storefront.order_items) AS line
LEFT JOIN shape.storefront.orders AS placed ON placed.id = line.order_id
LEFT JOIN shape.storefront.products AS product ON product.id = line.product_id
LEFT JOIN serve.storefront.product_ratings AS rating ON rating.product_id = line.product_key
GROUP BY line.product_key, coalesce(placed.currency, 'XXX')
