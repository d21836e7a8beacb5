/*
keys: [id]
window: {partition_by: [k], order_by: at, range: 1 hour}
*/
SELECT id, k, at, count(*) OVER w AS events_1h, sum(amount) OVER w AS amount_1h
FROM kept.by_event
WINDOW w AS (PARTITION BY k ORDER BY at RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)
