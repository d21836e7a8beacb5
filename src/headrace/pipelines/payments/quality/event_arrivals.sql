/*
about: Every event as it arrived with all its problems, those among them that only show beside the events before it.
target_lag: 30 seconds
keys: [stream, kafka_partition, kafka_offset]
partition_by: [days(created_at)]
constant: [created_at]
window: {partition_by: [stream], order_by: turn, range: 1 hour}
*/
-- A late event is older than one of the events sent just before it, within an hour of turns: whatever is late is older than
-- most of them, and one event from the future makes only a few others late.
SELECT
    stream,
    kafka_partition,
    kafka_offset,
    turn,
    event_id,
    created_at,
    concat(
        problems,
        CASE
            WHEN is_repeated THEN array('duplicate')
            WHEN max(created_at) OVER just_before > created_at THEN array('late')
            ELSE array()
        END
    ) AS problems
FROM payments_db.repeated_events
WINDOW just_before AS (PARTITION BY stream ORDER BY turn RANGE BETWEEN INTERVAL 1 HOUR PRECEDING AND CURRENT ROW)
