/*
about: What was sold on each day, by currency. Money of different currencies is never added up.
keys: [day, currency]
partition_by: [months(day)]
expect:
  no more comes back than was sold: refunded_amount <= gross_amount
*/
-- An order counts on the day it was made. What is pending or cancelled is not sold; what was returned was sold and given back.
SELECT
    CAST(created_at AS DATE) AS day,
    currency,
    count(*) AS order_count,
    count_if(status IN ('paid', 'packed', 'shipped', 'delivered', 'returned')) AS sold_order_count,
    count(DISTINCT customer_id) AS customer_count,
    CAST(coalesce(sum(total) FILTER (WHERE status NOT IN ('pending', 'cancelled')), 0) AS DECIMAL(28, 2)) AS gross_amount,
    CAST(coalesce(sum(total) FILTER (WHERE status = 'returned'), 0) AS DECIMAL(28, 2)) AS refunded_amount,
    CAST(coalesce(sum(total) FILTER (WHERE status NOT IN ('pending', 'cancelled', 'returned')), 0) AS DECIMAL(28, 2))
        AS net_amount
FROM shape.storefront.orders
GROUP BY CAST(created_at AS DATE), currency
