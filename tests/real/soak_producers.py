"""Producers that write all the time: idempotent ones of every codec, plain ones, and transactional ones that commit and abort."""

from __future__ import annotations

import logging
import random
from collections import Counter, deque
from collections.abc import Callable
from threading import Event, Thread
from types import TracebackType
from typing import Self

from confluent_kafka import KafkaError, KafkaException, Message, Producer

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PLAIN_ACKS = ("1", "all")
ORDERS, PAYMENTS, EVENTS = "orders", "payments", "events"
PARTITIONS = {ORDERS: len(CODECS), PAYMENTS: 2, EVENTS: len(PLAIN_ACKS)}
"""Of `ORDERS` each partition has a codec of its own; of `PAYMENTS` each transaction writes to all; of `EVENTS`, without
idempotence, each has its own `acks`: with 1 a new leader may lack, and cut off, what the old one has acknowledged.
"""

TRANSACTION_TIMEOUT_S = 10
_TRANSACTION_CODECS = ("lz4", "zstd")
_BURST = 10
PAUSE_S = 0.2
_QUEUE_MAX = 400
_BATCH_BYTES = 16384
"""What has waited for a leader goes as several: a broker refuses a batch that is larger than a segment."""

_ABORTED_SHARE = 0.3
_CALL_TIMEOUT_S = 30.0
_FLUSH_TIMEOUT_S = 60.0
_LOG_LINES = 300


class _Tail(logging.Handler):
    """The last lines that one client has logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=_LOG_LINES)
        self.logger = logging.Logger("librdkafka")  # noqa: LOG001 - of this client alone, so in no hierarchy
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.created:.3f} {record.getMessage()}")


class LiveProducers:
    """A context manager whose threads write until `stop`.

    `counts`: records that were acknowledged, or refused and why; transactions committed, aborted and broken off; producers
    started again; clients that stopped sending.
    """

    def __init__(self, bootstrap: str, seed: int, pause_s: float = PAUSE_S) -> None:
        """Args: seed: of the records' bytes, and of which transactions are aborted; pause_s: between ten records of a producer."""
        self._pause_s = pause_s
        self.counts: Counter[str] = Counter()
        self._acknowledged: Counter[tuple[str, int]] = Counter()
        self._bootstrap = bootstrap
        self._refusals: list[str] = []
        self._stop = Event()
        works: list[Callable[[], None]] = [
            lambda partition=partition, codec=codec: self._write(  # type: ignore[misc]
                ORDERS, partition, codec, {}, random.Random(f"{seed} {codec}")
            )
            for partition, codec in enumerate(CODECS)
        ]
        works += [
            lambda partition=partition, acks=acks: self._write(  # type: ignore[misc]
                EVENTS,
                partition,
                "snappy",
                {"enable.idempotence": False, "acks": acks},
                random.Random(f"{seed} acks {acks}"),
            )
            for partition, acks in enumerate(PLAIN_ACKS)
        ]
        works += [
            lambda codec=codec: self._transact(codec, random.Random(f"{seed} transactions {codec}"))  # type: ignore[misc]
            for codec in _TRANSACTION_CODECS
        ]
        self._threads = [Thread(target=work, name=f"producer-{number}") for number, work in enumerate(works)]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """End all transactions and send what is waiting.

        A client that stops sending for a minute is replaced, as its operator would; what librdkafka said is printed. Raises
        AssertionError if the broker does not take all records of the new client, or if a partition took none of the first one.
        """
        self._stop.set()
        for thread in self._threads:
            thread.join()
        written = {(topic, partition) for topic, count in PARTITIONS.items() for partition in range(count)}
        assert set(self._acknowledged) == written, (self._acknowledged, self.counts)
        assert not self._refusals, (self._refusals, self.counts)

    def _producer(self, codec: str, logger: logging.Logger | None = None, **more: str | int) -> Producer:
        return Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "batch.size": _BATCH_BYTES,
                "linger.ms": 5,
                "reconnect.backoff.max.ms": 500,
                # By default 5 minutes: a client that gets "no brokers" from a broker that has just started would wait so long.
                "topic.metadata.refresh.interval.ms": 2000,
                **(
                    {"log_level": 7, "debug": "metadata,topic,broker", "logger": logger} if logger else {"log_level": 0}
                ),
                **more,
            }
        )

    def _write(self, topic: str, partition: int, codec: str, more: dict[str, str | int], source: random.Random) -> None:
        said = _Tail()
        producer = self._producer(codec, said.logger, **more)
        while not self._stop.is_set():
            # While there is no leader the queue waits: more in it would only come as one burst.
            for _ in range(_BURST if len(producer) < _QUEUE_MAX else 0):
                producer.produce(topic, _value(source), _key(source), partition, on_delivery=self._delivered)
            producer.poll(0)
            self._stop.wait(self._pause_s)
        left = producer.flush(_FLUSH_TIMEOUT_S)
        if not left:
            return
        # Seen on a busy machine, after a bounce of a lone broker: librdkafka 2.16 has the queue and never sends it.
        # https://github.com/confluentinc/librdkafka/issues/5430 is one way to get there.
        print(f"{topic}-{partition}: a client has stopped sending, {left} records wait\n" + "\n".join(said.lines))
        producer.purge()
        self.counts["clients_replaced"] += 1
        self.counts["records_never_acknowledged"] += left
        heir = self._producer(codec, **more)
        taken: list[KafkaError | None] = []
        for _ in range(_BURST):
            heir.produce(
                topic, _value(source), _key(source), partition, on_delivery=lambda error, _: taken.append(error)
            )
        heir.flush(_FLUSH_TIMEOUT_S)
        if taken != [None] * _BURST:
            self._refusals.append(f"{topic}-{partition}: {taken}")

    def _transact(self, codec: str, source: random.Random) -> None:
        producer: Producer | None = None
        while not self._stop.is_set():
            try:
                if producer is None:
                    producer = self._producer(
                        codec,
                        **{"transactional.id": f"pays-{codec}", "transaction.timeout.ms": TRANSACTION_TIMEOUT_S * 1000},
                    )
                    producer.init_transactions(_CALL_TIMEOUT_S)
                    self.counts["transactional_producers"] += 1
                self._one_transaction(producer, source)
            except KafkaException as error:
                self.counts["transactions_broken_off"] += 1
                producer = _after(error, producer)

    def _one_transaction(self, producer: Producer, source: random.Random) -> None:
        producer.begin_transaction()
        for number in range(2 * _BURST):
            partition = number % PARTITIONS[PAYMENTS]
            producer.produce(PAYMENTS, _value(source), _key(source), partition, on_delivery=self._delivered)
        # Some are so long that segments roll in the middle of them.
        self._stop.wait(self._pause_s * source.choice((0.0, 0.5, 1.5, 10.0)))
        if source.random() < _ABORTED_SHARE:
            producer.abort_transaction(_CALL_TIMEOUT_S)
            self.counts["transactions_aborted"] += 1
        else:
            producer.commit_transaction(_CALL_TIMEOUT_S)
            self.counts["transactions_committed"] += 1

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        self.counts["records_acknowledged" if error is None else f"records_refused, {error.name()}"] += 1
        topic, partition = message.topic(), message.partition()
        if error is None and topic is not None and partition is not None:
            self._acknowledged[topic, partition] += 1


def _after(error: KafkaException, producer: Producer | None) -> Producer | None:
    """The producer to go on with; None to begin anew, which ends what the old one left open."""
    if producer is None or not error.args[0].txn_requires_abort():
        return None
    try:
        producer.abort_transaction(_CALL_TIMEOUT_S)
    except KafkaException:
        return None
    return producer


def _value(source: random.Random) -> bytes:
    """Half of it can be compressed."""
    return source.randbytes(150) + bytes(150)


def _key(source: random.Random) -> bytes:
    return str(source.randrange(1000)).encode()
