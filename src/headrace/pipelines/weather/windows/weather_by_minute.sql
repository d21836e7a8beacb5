/*
about: The average temperature of each city in each minute of its own time; a reading that comes late changes its minute.
keys: [city, window_start]
partition_by: [days(window_start)]
watermark: {column: event_time, delay: 10 minutes}
expect:
  the average is a temperature: avg_temperature BETWEEN -150 AND 150
  the city fits into Postgres:
    that: length(city) BETWEEN 1 AND 255 AND position(char(0) IN city) = 0
    on_failure: quarantine
*/
-- Decimals add up to the same sum in any order, doubles don't: so a window computed again is the same window. A city is one however
-- its blanks and its capitals are written. One plain SELECT, so that a build reads only the minutes that changed.
SELECT
    array_join(
        transform(
            filter(split(city, '\\s+'), word -> word <> ''), word -> concat(upper(left(word, 1)), lower(substring(word, 2)))
        ),
        ' '
    ) AS city,
    date_trunc('minute', coalesce(event_time, kafka_timestamp)) AS window_start,
    date_trunc('minute', coalesce(event_time, kafka_timestamp)) + INTERVAL 1 MINUTE AS window_end,
    CAST(avg(try_cast(temperature AS DECIMAL(18, 6))) AS DOUBLE) AS avg_temperature,
    count(*) AS record_count
FROM default.weather
GROUP BY
    array_join(
        transform(
            filter(split(city, '\\s+'), word -> word <> ''), word -> concat(upper(left(word, 1)), lower(substring(word, 2)))
        ),
        ' '
    ),
    date_trunc('minute', coalesce(event_time, kafka_timestamp))
