/*
keys: [g, day]
*/
SELECT g, CAST(at AS DATE) AS day, count(*) AS events, sum(amount) AS amount, min(n) AS first, count(DISTINCT k) AS keys
FROM kept.by_event
GROUP BY g, CAST(at AS DATE)
