/*
about: Orders of each day and of each month, by currency.
keys: [month, period, starts_on, currency]
partition_by: [years(month)]
expect:
  no more were cancelled than placed: cancelled_order_count <= order_count
*/
-- The month is among the keys of the days too: a build then reads the months that changed, and no others. An order counts where it
-- was made, also when it was cancelled later.
SELECT
    trunc(placed.order_date, 'MONTH') AS month,
    period.name AS period,
    IF(period.name = 'day', placed.order_date, trunc(placed.order_date, 'MONTH')) AS starts_on,
    placed.currency,
    count(*) AS order_count,
    count_if(placed.is_cancelled) AS cancelled_order_count,
    count_if(placed.is_paid AND NOT placed.is_cancelled) AS paid_order_count,
    count_if(placed.is_fulfilled) AS fulfilled_order_count,
    count_if(placed.is_guest) AS guest_order_count,
    count(DISTINCT placed.entity_id) AS buyers,
    coalesce(sum(placed.line_item_count), 0) AS line_items,
    coalesce(sum(placed.total_amount) FILTER (WHERE NOT placed.is_cancelled), 0) AS ordered_amount,
    coalesce(sum(placed.total_amount) FILTER (WHERE placed.is_cancelled), 0) AS cancelled_amount,
    coalesce(sum(placed.tax_amount) FILTER (WHERE NOT placed.is_cancelled), 0) AS tax_amount,
    coalesce(sum(placed.discount_amount) FILTER (WHERE NOT placed.is_cancelled), 0) AS discount_amount,
    coalesce(sum(placed.shipping_amount) FILTER (WHERE NOT placed.is_cancelled), 0) AS shipping_amount,
    CAST(avg(placed.total_amount) FILTER (WHERE NOT placed.is_cancelled) AS DECIMAL(19, 3)) AS average_order_amount
FROM analytics.entity_orders AS placed
LATERAL VIEW explode(array('day', 'month')) period AS name
GROUP BY
    trunc(placed.order_date, 'MONTH'),
    period.name,
    IF(period.name = 'day', placed.order_date, trunc(placed.order_date, 'MONTH')),
    placed.currency
