CREATE TABLE reading (
    city STRING NOT NULL,
    temperature STRING NOT NULL COMMENT 'degrees Fahrenheit, as they were sent',
    ts STRING NOT NULL COMMENT 'the hour, YYYY-MM-DD-HH in UTC',
    event_time TIMESTAMP COMMENT 'when the server took the reading, to the millisecond'
)
