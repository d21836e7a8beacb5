-- Who reads the changes: may replicate, may read the tables, and no more. Headrace sets the password when it registers the connector.

DO $$
BEGIN
    -- Roles are the server's, not the database's: another storefront may have made it.
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'debezium') THEN
        CREATE ROLE debezium LOGIN REPLICATION NOSUPERUSER NOCREATEDB NOCREATEROLE;
    END IF;
END
$$;

GRANT USAGE ON SCHEMA public TO debezium;
GRANT SELECT ON ALL TABLES IN SCHEMA public TO debezium;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO debezium;
