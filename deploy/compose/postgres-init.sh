#!/bin/bash
# Runs once, when Postgres's data folder is new: a role and a database for each that needs one. Passwords come from the environment.
set -euo pipefail

psql --username "${POSTGRES_USER:-postgres}" --dbname postgres --set ON_ERROR_STOP=1 --quiet <<'SQL'
\getenv headrace_password HEADRACE_POSTGRES_PASSWORD
\getenv polaris_password POLARIS_POSTGRES_PASSWORD
\getenv registry_password REGISTRY_POSTGRES_PASSWORD
CREATE ROLE headrace LOGIN CREATEDB CREATEROLE REPLICATION PASSWORD :'headrace_password';
CREATE ROLE polaris LOGIN PASSWORD :'polaris_password';
CREATE ROLE registry LOGIN PASSWORD :'registry_password';
CREATE DATABASE analytics OWNER headrace;
CREATE DATABASE polaris OWNER polaris;
CREATE DATABASE registry OWNER registry;
SQL
