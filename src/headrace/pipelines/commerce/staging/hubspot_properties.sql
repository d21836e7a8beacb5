/*
about: The newest value of each property of each contact and company, from whatever event told it last.
keys: [object, object_id, property]
sequence_by: _version
except_column_list: [kafka_topic, kafka_partition, kafka_offset, is_readable]
expect:
  the event is about somebody: {that: object_id IS NOT NULL, on_failure: quarantine}
  the event has a time: {that: changed_at IS NOT NULL, on_failure: quarantine}
  its properties can be read: {that: is_readable, on_failure: quarantine}
*/
-- HubSpot tells what changed, not how things stand: so things stand as the last events of each property say. `_created` and
-- `_exists` are properties of ours, which creations, deletions and restorations set. An event that comes again says the same once
-- more. A creation is older than the changes of its millisecond. Associations and merges are in the raw tables alone.
WITH events AS (
    SELECT
        'contact' AS object,
        id,
        properties,
        property_name,
        property_value,
        occurred_at,
        split_part(_webhook_topic, '.', -1) AS happened,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.hubspot_contacts
    UNION ALL
    SELECT
        'company' AS object,
        id,
        properties,
        property_name,
        property_value,
        occurred_at,
        split_part(_webhook_topic, '.', -1) AS happened,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset
    FROM raw.hubspot_companies
),

parsed AS (
    SELECT *, from_json(properties, 'MAP<STRING, STRING>') AS parsed_properties, blank_signs() AS blanks
    FROM events
    WHERE happened IN ('creation', 'propertyChange', 'deletion', 'privacyDeletion', 'restore')
),

told AS (
    SELECT
        object,
        id,
        properties,
        parsed_properties,
        blanks,
        occurred_at,
        happened,
        _event_id,
        _loaded_at,
        kafka_topic,
        kafka_partition,
        kafka_offset,
        explode(concat(
            CASE
                WHEN happened = 'propertyChange'
                    THEN array(struct(lower(trim(BOTH blanks FROM property_name)) AS name, property_value AS value))
                WHEN happened = 'creation'
                    THEN array(struct('_created' AS name, 'true' AS value), struct('_exists' AS name, 'true' AS value))
                ELSE array(struct('_exists' AS name, CAST(happened = 'restore' AS STRING) AS value))
            END,
            transform(
                map_entries(coalesce(parsed_properties, CAST(map() AS MAP<STRING, STRING>))),
                each -> struct(
                    lower(trim(BOTH blanks FROM each.key)) AS name,
                    coalesce(get_json_object(each.value, '$.value'), each.value) AS value
                )
            )
        )) AS property
    FROM parsed
)

SELECT
    object,
    IF(is_nothing(lower(trim(BOTH blanks FROM id))), NULL, trim(BOTH blanks FROM id)) AS object_id,
    property.name AS property,
    struct(
        occurred_at AS at,
        happened <> 'creation' AS is_change,
        _event_id AS event_id
    ) AS _version,
    IF(
        is_no_value_of(property.name, lower(trim(BOTH blanks FROM property.value))),
        NULL,
        trim(BOTH blanks FROM property.value)
    ) AS value,
    occurred_at AS changed_at,
    _event_id AS _raw_id,
    _loaded_at AS _staged_at,
    properties IS NULL OR parsed_properties IS NOT NULL AS is_readable,
    kafka_topic,
    kafka_partition,
    kafka_offset
FROM told
