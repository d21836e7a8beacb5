-- A webhook of a type that nobody here knows, all of it.
payload STRING,
_webhook_topic STRING,
_event_id STRING,
_loaded_at TIMESTAMP
