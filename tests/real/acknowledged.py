"""Producers that remember what a broker has acknowledged: every record with its offset and timestamp."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeAlias

from confluent_kafka import Message, Producer

from tests.real.reading_back import Read
from tests.servers.kafka import KafkaBroker

Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]

TIMEOUT_S = 60.0
CREATE_TIME = 1


class AcknowledgingProducer:
    """librdkafka, idempotent. `acknowledged`: all of its records that a broker has confirmed, in that order."""

    def __init__(self, broker: KafkaBroker, topic: str, **settings: Any) -> None:
        """Args: settings: of librdkafka, with `_` for `.`; `transactional_id` makes it transactional."""
        self._topic = topic
        named = {name.replace("_", "."): value for name, value in settings.items()}
        self._producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "batch.num.messages": 40,
                "log_level": 0,
                **named,
            }
        )
        self._random = random.Random(topic)
        self._failed: list[str] = []
        self.acknowledged: list[Read] = []
        if "transactional.id" in named:
            self._producer.init_transactions(TIMEOUT_S)

    def send(self, count: int, *, keys: int = 50, first_timestamp_ms: int) -> list[Read]:
        """Records with headers of all kinds, some of them tombstones, some without a key (unless few keys are asked for).

        Returns what was acknowledged, once all is.
        """
        before = len(self.acknowledged)
        for number in range(count):
            key = None if keys >= 50 and number % 11 == 0 else b"key-%d" % self._random.randrange(keys)
            headers = _headers(number)
            self._producer.produce(
                self._topic,
                key=key,
                value=None if key and number % 13 == 0 else self._random.randbytes(40).hex().encode(),
                headers=headers,
                timestamp=first_timestamp_ms + 3 * number,
                partition=0,
                on_delivery=partial(self._delivered, tuple(headers)),  # what comes back has none
            )
        left = self._producer.flush(TIMEOUT_S)
        if left or self._failed:
            raise TimeoutError(f"{self._topic}: {left} records are not acknowledged, refused were {self._failed}")
        return self.acknowledged[before:]

    @contextmanager
    def transaction(self, *, commit: bool) -> Iterator[None]:
        """What is sent inside is committed, or aborted."""
        self._producer.begin_transaction()
        yield
        if commit:
            self._producer.commit_transaction(TIMEOUT_S)
        else:
            self._producer.abort_transaction(TIMEOUT_S)

    def _delivered(self, headers: Headers, error: Any, message: Message) -> None:
        if error is not None:
            self._failed.append(str(error))
            return
        offset, (_, timestamp_ms) = int(message.offset() or 0), message.timestamp()
        read = Read(offset, (CREATE_TIME, timestamp_ms), _bytes(message.key()), _bytes(message.value()), headers)
        self.acknowledged.append(read)


def _headers(number: int) -> list[tuple[str, bytes | None]]:
    kinds: list[list[tuple[str, bytes | None]]] = [
        [],
        [("trace", b"t-%d" % number)],
        [("trace", b"again"), ("trace", b""), ("absent", None)],
        [("größe", b"\x00\xff")],
    ]
    return kinds[number % len(kinds)]


def _bytes(value: str | bytes | None) -> bytes | None:
    return value.encode() if isinstance(value, str) else value
