/*
about: What customers say of each product.
keys: [product_id]
*/
SELECT
    CAST(product_id AS STRING) AS product_id,
    count(*) AS review_count,
    CAST(avg(rating) AS DECIMAL(4, 2)) AS average_rating,
    CAST(sum(helpful_votes) AS BIGINT) AS helpful_votes,
    max(created_at) AS last_review_at
FROM shape.storefront.reviews
GROUP BY CAST(product_id AS STRING)
