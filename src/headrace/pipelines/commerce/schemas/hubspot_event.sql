-- One event of a contact or a company as HubSpot tells it: what changed, and where the sender adds them, all properties as JSON.
id STRING,
properties STRING,
property_name STRING,
property_value STRING,
change_source STRING,
portal_id STRING,
app_id STRING,
subscription_id STRING,
attempt_number INT,
occurred_at TIMESTAMP,
_webhook_topic STRING,
_event_id STRING,
_loaded_at TIMESTAMP
