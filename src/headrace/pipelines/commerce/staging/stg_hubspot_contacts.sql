/*
about: Each contact of HubSpot as it stands now, put together from the events that created and changed it.
keys: [contact_id]
expect:
  the contact was not deleted: {that: exists_now, on_failure: drop}
  the email address has an @: "email IS NULL OR email LIKE '_%@_%'"
  there is an email address or a phone: email IS NOT NULL OR phone IS NOT NULL
  the creation was told: is_told_whole
*/
SELECT
    object_id AS contact_id,
    max(value) FILTER (WHERE property = 'email') AS email,
    coalesce(
        max(value) FILTER (WHERE property = 'phone'), max(value) FILTER (WHERE property = 'mobilephone')
    ) AS phone,
    max(value) FILTER (WHERE property = 'firstname') AS first_name,
    max(value) FILTER (WHERE property = 'lastname') AS last_name,
    nullif(
        concat_ws(' ', max(value) FILTER (WHERE property = 'firstname'), max(value) FILTER (WHERE property = 'lastname')), ''
    ) AS full_name,
    max(value) FILTER (WHERE property = 'company') AS company,
    max(value) FILTER (WHERE property = 'jobtitle') AS job_title,
    lower(max(value) FILTER (WHERE property = 'lifecyclestage')) AS lifecycle_stage,
    lower(max(value) FILTER (WHERE property = 'hs_lead_status')) AS lead_status,
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
WHERE object = 'contact'
GROUP BY object_id
