"""Names of settings of other systems that compose.yaml uses, as their documentation has them.

What is not here is a typing error, or has to be looked up first.
"""

from __future__ import annotations

TRINO = {  # trino.io/docs/476: connector/iceberg, object-storage/metastores, object-storage/file-system-s3
    "connector.name",
    "iceberg.catalog.type",
    "iceberg.rest-catalog.uri",
    "iceberg.rest-catalog.warehouse",
    "iceberg.rest-catalog.nested-namespace-enabled",
    "iceberg.rest-catalog.security",
    "iceberg.rest-catalog.oauth2.credential",
    "iceberg.rest-catalog.oauth2.scope",
    "iceberg.rest-catalog.oauth2.server-uri",
    "fs.native-s3.enabled",
    "s3.endpoint",
    "s3.region",
    "s3.path-style-access",
    "s3.aws-access-key",
    "s3.aws-secret-key",
}
KAFKA = {  # kafka.apache.org/documentation: broker settings, as KAFKA_ and capitals; CLUSTER_ID is the image's own
    "CLUSTER_ID",
    "KAFKA_NODE_ID",
    "KAFKA_PROCESS_ROLES",
    "KAFKA_LISTENERS",
    "KAFKA_ADVERTISED_LISTENERS",
    "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
    "KAFKA_INTER_BROKER_LISTENER_NAME",
    "KAFKA_CONTROLLER_LISTENER_NAMES",
    "KAFKA_CONTROLLER_QUORUM_VOTERS",
    "KAFKA_LOG_DIRS",
    "KAFKA_AUTO_CREATE_TOPICS_ENABLE",
    "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR",
    "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR",
    "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR",
}
CONNECT = {  # Debezium's image: its own names, and any of Connect's worker settings as CONNECT_ and capitals
    "BOOTSTRAP_SERVERS",
    "GROUP_ID",
    "CONFIG_STORAGE_TOPIC",
    "OFFSET_STORAGE_TOPIC",
    "STATUS_STORAGE_TOPIC",
    "ENABLE_APICURIO_CONVERTERS",
    "CONNECT_CONFIG_STORAGE_REPLICATION_FACTOR",
    "CONNECT_OFFSET_STORAGE_REPLICATION_FACTOR",
    "CONNECT_STATUS_STORAGE_REPLICATION_FACTOR",
    "CONNECT_EXACTLY_ONCE_SOURCE_SUPPORT",
    "CONNECT_PRODUCER_TRANSACTION_TIMEOUT_MS",
}
POLARIS = {  # polaris.apache.org: configuration reference; AWS_* are those of Amazon's SDK
    "POLARIS_PERSISTENCE_TYPE",
    "POLARIS_REALM_CONTEXT_REALMS",
    "QUARKUS_DATASOURCE_JDBC_URL",
    "QUARKUS_DATASOURCE_USERNAME",
    "QUARKUS_DATASOURCE_PASSWORD",
    "QUARKUS_OTEL_SDK_DISABLED",
    "AWS_REGION",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
}
REGISTRY = {  # Apicurio Registry 3: storage options
    "APICURIO_STORAGE_KIND",
    "APICURIO_STORAGE_SQL_KIND",
    "APICURIO_DATASOURCE_URL",
    "APICURIO_DATASOURCE_USERNAME",
    "APICURIO_DATASOURCE_PASSWORD",
}
OTHERS = {
    "akhq": {"AKHQ_CONFIGURATION"},
    "minio": {"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"},
    "minio-setup": {"MC_HOST_lake"},
    "spark-master": {"SPARK_MASTER_OPTS"},
    "postgres": {"POSTGRES_PASSWORD", "HEADRACE_POSTGRES_PASSWORD", "POLARIS_POSTGRES_PASSWORD", "REGISTRY_POSTGRES_PASSWORD"},
    "polaris-setup": {
        *("POLARIS_URL", "POLARIS_CREDENTIAL", "POLARIS_CATALOG"),
        *("POLARIS_LOCATION", "POLARIS_S3_ENDPOINT", "POLARIS_S3_REGION"),
    },
    "trino": {"CATALOG_CREDENTIAL", "S3_ACCESS_KEY", "S3_SECRET_KEY"},
}
"""What each of the other services takes; those of Postgres, of the set-up of Polaris and of Trino are read by files of ours."""

BY_SERVICE = {
    **OTHERS,
    "kafka": KAFKA,
    "connect": CONNECT,
    "polaris": POLARIS,
    "polaris-bootstrap": POLARIS,
    "registry": REGISTRY,
}
