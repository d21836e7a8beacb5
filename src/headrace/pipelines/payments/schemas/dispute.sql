-- A charge that the customer's bank contests: opened, defended with evidence, won or lost. One row for each step of a dispute.
event_id STRING,
event_type STRING,
provider STRING,
dispute_id STRING,
charge_id STRING,
customer_id STRING,
amount DECIMAL(10, 2),
currency STRING,
status STRING,
reason STRING COMMENT 'as the provider calls it',
network STRING COMMENT 'whose rules decide: a card brand, or sepa',
network_reason_code STRING COMMENT 'as the network numbers it, such as 10.4 or 4853',
internal_reason STRING COMMENT 'as the merchant files it',
case_number STRING COMMENT 'whole: CB-, eight digits, -, four letters or digits',
evidence STRUCT<
    due_by: TIMESTAMP(3),
    submitted_at: TIMESTAMP(3),
    submission_count: INT,
    documents: ARRAY<STRING>
>,
is_charge_refundable BOOLEAN,
merchant_id STRING,
metadata STRUCT<
    original_order_id: STRING,
    assigned_to: STRING
>,
created_at TIMESTAMP(3),
updated_at TIMESTAMP(3)
