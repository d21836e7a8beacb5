/*
about: How far records could be put together, for each source and, as "all", for all of them.
kind: full
*/
WITH entities AS (
    SELECT entity_id, count(*) AS records, count(DISTINCT source) AS sources
    FROM semantic.entity_index
    GROUP BY entity_id
)

SELECT
    coalesce(records.source, 'all') AS source,
    count(*) AS records,
    count(DISTINCT records.entity_id) AS entities,
    count(DISTINCT IF(entities.sources > 1, records.entity_id, NULL)) AS cross_source_entities,
    count_if(entities.records > 1) AS matched_records,
    max(entities.records) AS largest_entity,
    count(records.email_normalized) AS records_with_email,
    count(records.phone_normalized) AS records_with_phone,
    count(DISTINCT IF(array_contains(records.unused_matches, 'email_normalized'), records.email_normalized, NULL))
        AS emails_of_too_many,
    count(DISTINCT IF(array_contains(records.unused_matches, 'phone_normalized'), records.phone_normalized, NULL))
        AS phones_of_too_many,
    count_if(size(records.previous_entity_ids) > 0) AS records_of_merged_entities
FROM semantic.entity_index AS records
INNER JOIN entities ON entities.entity_id = records.entity_id
GROUP BY GROUPING SETS ((records.source), ())
