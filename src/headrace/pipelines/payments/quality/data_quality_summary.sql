/*
about: How many events of each stream and day show each problem, and what share of all events that is. None is a result too.
target_lag: 30 seconds
keys: [stream, day, problem]
partition_by: [months(day)]
expect:
  no share is above 1: share_of_events <= 1
*/
-- Every kind has a row, found or not, so that a day's share is of all events of that day.
WITH kinds AS (
    SELECT
        stream,
        explode(
            concat(
                array('mixed_case_provider', 'duplicate', 'late'),
                CASE stream
                    WHEN 'charges'
                        THEN array(
                            'null_text', 'empty_text', 'invalid_country', 'missing_postal_code', 'mixed_case_currency'
                        )
                    WHEN 'refunds' THEN array('null_status', 'inconsistent_reason', 'missing_support_ticket')
                    WHEN 'disputes' THEN array('missing_evidence', 'null_currency', 'incomplete_case_number')
                    WHEN 'subscriptions' THEN array('null_trial_dates', 'missing_promo_code', 'inconsistent_interval')
                END
            )
        ) AS problem
    FROM VALUES ('charges'), ('refunds'), ('disputes'), ('subscriptions') AS streams (stream)
)

SELECT
    event.stream,
    date(event.created_at) AS day,
    kinds.problem,
    count_if(array_contains(event.problems, kinds.problem)) AS events_with_problem,
    count(*) AS events,
    CAST(
        CAST(count_if(array_contains(event.problems, kinds.problem)) AS DECIMAL(18, 0)) / count(*) AS DECIMAL(7, 6)
    ) AS share_of_events
FROM payments_db.event_arrivals AS event
JOIN kinds ON kinds.stream = event.stream
GROUP BY event.stream, date(event.created_at), kinds.problem
