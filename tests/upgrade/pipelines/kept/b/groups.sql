/*
keys: [g]
*/
SELECT g, count(*) AS keys, max(n) AS newest, sum(amount) AS amount FROM kept.present GROUP BY g
