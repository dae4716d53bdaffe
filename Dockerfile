# syntax=docker/dockerfile:1
# hadolint global ignore=DL3008
# (Debian's security updates replace versions: a pinned one would soon be gone. BASE by digest is the pin.)
# The one image: archiver, backfill, heal. `make image` builds it, `make image-test` proves it.
#
#   BASE        a Debian 12 image; releases pin it by digest (--build-arg BASE=debian@sha256:…)
#   SPARK_JARS  local: what work within one container loads. all: also what talks to Kubernetes and YARN.
ARG BASE=docker.io/library/debian:bookworm-slim

# ---- a Java runtime of the modules that Spark loads
# (Java's package wants the folder of manual pages, which slim images lack.)
FROM ${BASE} AS jre
RUN mkdir -p /usr/share/man/man1 \
 && apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends openjdk-17-jdk-headless binutils ca-certificates-java \
 && rm -rf /var/lib/apt/lists/*
RUN jlink --output /opt/java --strip-debug --compress=2 --no-header-files --no-man-pages --add-modules \
java.base,java.compiler,java.datatransfer,java.desktop,java.instrument,java.logging,java.management,java.management.rmi,\
java.naming,java.net.http,java.prefs,java.rmi,java.scripting,java.security.jgss,java.security.sasl,java.sql,java.sql.rowset,\
java.transaction.xa,java.xml,java.xml.crypto,jdk.crypto.ec,jdk.httpserver,jdk.incubator.vector,jdk.jfr,jdk.management,\
jdk.naming.dns,jdk.net,jdk.security.auth,jdk.security.jgss,jdk.unsupported,jdk.zipfs \
 && cp -L /etc/ssl/certs/java/cacerts /opt/java/lib/security/cacerts \
 && cp -L /usr/share/doc/openjdk-17-jdk-headless/copyright /opt/java/copyright \
 && /opt/java/bin/java -XX:+UseSerialGC -Xshare:dump

# ---- the program and its libraries, from the lock, every file by hash
FROM ${BASE} AS app
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/tiered-sidecar
COPY requirements-image.lock /build/
RUN /opt/tiered-sidecar/bin/pip install --no-cache-dir --no-compile --no-deps --require-hashes -r /build/requirements-image.lock
COPY docker/trim.py /build/docker/
ARG SPARK_JARS=local
RUN python3 /build/docker/trim.py /opt/tiered-sidecar/lib/python3.11/site-packages ${SPARK_JARS}
COPY pyproject.toml docker/place.py docker/launch.py /build/
COPY producer_state /build/producer_state
COPY sidecar /build/sidecar
# No build backend: it would be one more thing to fetch. The packages are pure Python and go where pip would put them.
RUN python3 /build/place.py /build /opt/tiered-sidecar \
 && /opt/tiered-sidecar/bin/pip uninstall -q -y pip setuptools \
 && python3 -m compileall -q -j 0 --invalidation-mode unchecked-hash /opt/tiered-sidecar/lib

# ---- what is shipped
FROM ${BASE} AS final
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends ca-certificates libnss-wrapper libstdc++6 python3 tini \
 && find /usr/share/doc -type f ! -name copyright -delete \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/* /usr/share/man /usr/share/locale
# Spark asks for the name of its user. Brokers run as 1000 (Apache, Confluent) or 1001 (Bitnami, Strimzi); the rest as 10001. Any
# other user ID gets a name from libnss-wrapper when the program starts (docker/launch.py).
RUN for id in 1000 1001 10001; do \
      echo "kafka${id}:x:${id}:0:tiered-sidecar:/tmp:/usr/sbin/nologin" >> /etc/passwd; \
      echo "kafka${id}:x:${id}:" >> /etc/group; \
    done
COPY --from=jre /opt/java /opt/java
COPY --from=app /opt/tiered-sidecar /opt/tiered-sidecar
COPY LICENSE NOTICE /usr/share/licenses/tiered-sidecar/
COPY docker/smoke.py /opt/tiered-sidecar/smoke.py
# All that is written goes below /tmp, or where the settings say: the root file system is read-only.
ENV PATH=/opt/tiered-sidecar/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin \
    JAVA_HOME=/opt/java \
    HOME=/tmp \
    XDG_CACHE_HOME=/opt/tiered-sidecar/cache \
    NUMBA_CACHE_DIR=/tmp/kernels \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LANG=C.UTF-8
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
ARG SOURCE=
LABEL org.opencontainers.image.title="tiered-sidecar" \
      org.opencontainers.image.description="Archives finished Kafka log segments to S3-compatible storage." \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}" \
      org.opencontainers.image.source="${SOURCE}"
# Kernels and the JVM's classes are made ready once, here: else each new pod compiles for half a minute of a processor. And the
# image does not come to be unless everything works, Spark too, with what the trimming left.
# (The linker makes a library of kernels, with which most commands need no compiler: 110 MB less memory. It does not stay.)
RUN apt-get update \
 && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends binutils \
 && NUMBA_CACHE_DIR=/opt/tiered-sidecar/kernels tiered-sidecar prepare \
 && apt-get purge -y --auto-remove binutils \
 && rm -rf /var/lib/apt/lists/* /var/cache/apt /var/cache/debconf /var/log/* \
 && NUMBA_CACHE_DIR=/opt/tiered-sidecar/kernels /opt/tiered-sidecar/bin/python /opt/tiered-sidecar/smoke.py \
 && chmod -R a+rX /opt/tiered-sidecar/kernels /opt/tiered-sidecar/cache \
 && rm -rf /tmp/*
USER 10001:0
WORKDIR /tmp
EXPOSE 9308
ENTRYPOINT ["/usr/bin/tini", "-s", "-g", "--", "tiered-sidecar"]
CMD ["--help"]
