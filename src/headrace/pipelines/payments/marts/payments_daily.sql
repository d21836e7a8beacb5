/*
about: Transactions and money of each day, by provider, kind and status; money is only added up within a currency.
keys: [day, provider, transaction_type, status, currency]
partition_by: [months(day)]
target_lag: 0 seconds
*/
SELECT
    date(created_at) AS day,
    provider,
    transaction_type,
    status,
    currency,
    count(*) AS transaction_count,
    sum(amount) AS total_amount,
    sum(signed_amount) AS net_amount,
    min(amount) AS smallest_amount,
    max(amount) AS largest_amount,
    CAST(avg(amount) AS DECIMAL(12, 2)) AS average_amount
FROM payments_db.payment_transactions
GROUP BY date(created_at), provider, transaction_type, status, currency
