/*
about: Each merchant as the charges tell of them - newest name, all providers and currencies.
keys: [merchant_id]
expect:
  there is a name: name IS NOT NULL
*/
SELECT
    merchant_id,
    max_by(name, day) FILTER (WHERE name IS NOT NULL) AS name,
    array_sort(array_distinct(flatten(collect_list(providers)))) AS providers,
    array_sort(array_distinct(flatten(collect_list(currencies)))) AS currencies,
    min(first_seen_at) AS first_seen_at
FROM payments_db.merchant_days
GROUP BY merchant_id
