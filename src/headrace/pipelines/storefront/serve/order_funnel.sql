/*
about: How far the orders of each day have come.
keys: [day]
partition_by: [months(day)]
expect:
  nobody gets what was not sent: delivered_count <= shipped_count
*/
-- An order that has come to a step has come to all before it. One that was cancelled is counted as that alone.
SELECT
    CAST(created_at AS DATE) AS day,
    count(*) AS placed_count,
    count_if(status IN ('paid', 'packed', 'shipped', 'delivered', 'returned')) AS paid_count,
    count_if(status IN ('packed', 'shipped', 'delivered', 'returned')) AS packed_count,
    count_if(status IN ('shipped', 'delivered', 'returned')) AS shipped_count,
    count_if(status IN ('delivered', 'returned')) AS delivered_count,
    count_if(status = 'returned') AS returned_count,
    count_if(status = 'cancelled') AS cancelled_count,
    CAST(100 * count_if(status IN ('delivered', 'returned')) / count(*) AS DECIMAL(5, 2)) AS delivered_percent
FROM shape.storefront.orders
GROUP BY CAST(created_at AS DATE)
