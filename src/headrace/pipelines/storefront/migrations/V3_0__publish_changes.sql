-- What is captured, and the two tables that the connector itself writes to.

CREATE SCHEMA debezium;
GRANT USAGE ON SCHEMA debezium TO debezium;

-- Written at every heartbeat, so that the slot moves on while the shop's tables are idle.
CREATE TABLE debezium.heartbeat (id integer PRIMARY KEY, beat_at timestamptz NOT NULL);
GRANT SELECT, INSERT, UPDATE ON debezium.heartbeat TO debezium;

-- Rows ask the connector for something, such as a new snapshot of a table.
CREATE TABLE debezium.signal (id text PRIMARY KEY, type text NOT NULL, data text);
GRANT SELECT, INSERT, DELETE ON debezium.signal TO debezium;

-- With the old row in every change, a change says all values, also large ones that it left alone. Reviews do without: there
-- only the key comes along, and a large text that did not change is told as unavailable.
ALTER TABLE customers REPLICA IDENTITY FULL;
ALTER TABLE addresses REPLICA IDENTITY FULL;
ALTER TABLE categories REPLICA IDENTITY FULL;
ALTER TABLE products REPLICA IDENTITY FULL;
ALTER TABLE promotions REPLICA IDENTITY FULL;
ALTER TABLE orders REPLICA IDENTITY FULL;
ALTER TABLE order_items REPLICA IDENTITY FULL;
ALTER TABLE payments REPLICA IDENTITY FULL;
ALTER TABLE shipments REPLICA IDENTITY FULL;

CREATE PUBLICATION storefront FOR TABLE
    customers, addresses, categories, products, promotions, orders, order_items, payments, shipments, reviews,
    debezium.heartbeat, debezium.signal;
