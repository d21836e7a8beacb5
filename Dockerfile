# The one image: Headrace, its packages, Java and the jars of Spark. The driver, executors, Spark's master and workers run from it,
# so all of them have the same versions. `docker build --target headrace .`; the target `dagster` adds Dagster beside it.

FROM eclipse-temurin:21.0.8_9-jre-noble@sha256:20e7f7288e1c18eebe8f06a442c9f7183342d9b022d3b9a9677cae2b558ddddd AS java

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS build
WORKDIR /build
COPY requirements.lock ./
# Every package is checked against its hash here; what is installed below comes out of this folder alone.
RUN pip wheel --quiet --disable-pip-version-check --no-deps --require-hashes --requirement requirements.lock --wheel-dir wheels
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/headrace \
 && /opt/headrace/bin/pip install --quiet --disable-pip-version-check --no-index --find-links wheels .
COPY --from=java /opt/java/openjdk /opt/java
ENV JAVA_HOME=/opt/java HEADRACE_CACHE=/opt/headrace/cache
COPY deploy/link_jars.py ./
RUN /opt/headrace/bin/python link_jars.py

FROM python:3.12.12-slim-bookworm@sha256:593bd06efe90efa80dc4eee3948be7c0fde4134606dd40d8dd8dbcade98e669c AS headrace
RUN useradd --uid 10001 --create-home headrace \
 && mkdir --parents /srv/headrace /var/lib/headrace \
 && chown headrace:headrace /srv/headrace /var/lib/headrace
COPY --from=java /opt/java/openjdk /opt/java
COPY --from=build /opt/headrace /opt/headrace
COPY --chmod=755 deploy/entrypoint.sh /opt/headrace/bin/entrypoint
ENV JAVA_HOME=/opt/java \
    SPARK_HOME=/opt/headrace/lib/python3.12/site-packages/pyspark \
    PYSPARK_PYTHON=/opt/headrace/bin/python \
    HEADRACE_CACHE=/opt/headrace/cache \
    HEADRACE_HOME=/var/lib/headrace \
    PATH=/opt/headrace/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin
WORKDIR /srv/headrace
USER 10001
ENTRYPOINT ["/opt/headrace/bin/entrypoint"]
CMD ["--help"]

FROM headrace AS dagster
USER root
COPY tests/export/dagster.lock /opt/dagster/requirements.lock
RUN python3 -m venv /opt/dagster \
 && /opt/dagster/bin/pip install --quiet --disable-pip-version-check --no-deps --only-binary=:all: --require-hashes \
      --requirement /opt/dagster/requirements.lock \
 && mkdir --parents /var/lib/dagster /opt/dagster/defs \
 && chown headrace:headrace /var/lib/dagster \
 && for pipeline in commerce payments storefront weather; do headrace export dagster "$pipeline" --into /opt/dagster/defs || exit 1; done
ENV DAGSTER_HOME=/var/lib/dagster \
    HEADRACE_COMMAND=/opt/headrace/bin/headrace \
    HEADRACE_FOLDER=/srv/headrace
USER 10001
ENTRYPOINT []
CMD ["/opt/dagster/bin/dagster-webserver", "--help"]
