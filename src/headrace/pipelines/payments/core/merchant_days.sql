/*
about: What was learnt of each merchant on each day, and how many charges there were.
keys: [merchant_id, day]
partition_by: [months(day)]
*/
-- A step on the way to merchants, as customer_days is for customers.
SELECT
    merchant_id,
    date(created_at) AS day,
    max_by(merchant_name, struct(updated_at, event_id)) FILTER (WHERE merchant_name IS NOT NULL) AS name,
    array_sort(collect_set(provider)) AS providers,
    array_sort(collect_set(currency)) AS currencies,
    count(*) AS charges,
    count_if(common_status = 'failed') AS failed_charges,
    min(created_at) AS first_seen_at,
    max(created_at) AS last_seen_at
FROM payments_db.payment_charges_cleaned
WHERE merchant_id IS NOT NULL
GROUP BY merchant_id, date(created_at)
