-- Money that goes back to a customer: all of a charge, or a part of it.
event_id STRING,
event_type STRING,
provider STRING,
refund_id STRING,
charge_id STRING,
customer_id STRING,
amount DECIMAL(10, 2),
currency STRING,
status STRING,
reason STRING,
failure_reason STRING,
merchant_id STRING,
metadata STRUCT<
    refund_requested_by: STRING,
    original_order_id: STRING,
    support_ticket_id: STRING
>,
created_at TIMESTAMP(3),
updated_at TIMESTAMP(3)
