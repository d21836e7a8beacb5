/*
about: Each company of HubSpot as it stands now, put together from the events that created and changed it.
keys: [company_id]
expect:
  the company was not deleted: {that: exists_now, on_failure: drop}
  there is a name: name IS NOT NULL
  the creation was told: is_told_whole
*/
SELECT
    object_id AS company_id,
    max(value) FILTER (WHERE property = 'name') AS name,
    lower(max(value) FILTER (WHERE property = 'domain')) AS domain,
    max(value) FILTER (WHERE property = 'industry') AS industry,
    max(value) FILTER (WHERE property = 'phone') AS phone,
    max(value) FILTER (WHERE property = 'city') AS city,
    max(value) FILTER (WHERE property = 'state') AS state,
    max(value) FILTER (WHERE property = 'country') AS country,
    coalesce(max(changed_at) FILTER (WHERE property = '_created'), min(changed_at)) AS created_at,
    max(changed_at) AS updated_at,
    max_by(_raw_id, struct(changed_at, _raw_id)) AS _raw_id,
    max(_staged_at) AS _staged_at,
    coalesce(max(value) FILTER (WHERE property = '_exists') = 'true', true) AS exists_now,
    count_if(property = '_created') > 0 AS is_told_whole
FROM staging.hubspot_properties
WHERE object = 'company'
GROUP BY object_id
