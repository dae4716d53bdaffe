#!/bin/sh
exec java ${KAFKA_HEAP_OPTS:--Xmx256m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 \
  -Dlog4j2.configurationFile="${KAFKA_LOG4J:-/etc/kafka/docker/tools-log4j2.yaml}" -cp '/opt/kafka/libs/*' "$@"
