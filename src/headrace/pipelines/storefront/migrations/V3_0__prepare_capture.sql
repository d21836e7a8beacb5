-- What capturing needs: the two tables that the connector writes to, and how much of a row a change says. The publication is made
-- when the connector is registered.

-- Written at every heartbeat, so that the slot moves on while the shop's tables are idle.
CREATE TABLE debezium_heartbeat (id integer PRIMARY KEY, at timestamptz NOT NULL);
GRANT SELECT, INSERT, UPDATE ON debezium_heartbeat TO debezium;

-- Rows ask the connector for something, such as a new snapshot of a table.
CREATE TABLE debezium_signal (id text PRIMARY KEY, type text NOT NULL, data text);
GRANT SELECT, INSERT, DELETE ON debezium_signal TO debezium;

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
