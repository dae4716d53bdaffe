"""kafka-python's connections without its own clients, which hide why they could not be made."""

from __future__ import annotations

import logging
import struct
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka.net.compat import KafkaNetClient


def failures() -> tuple[type[Exception], ...]:
    """What kafka-python raises where a broker does not answer, or not as it should."""
    from kafka.errors import KafkaError

    return (KafkaError, OSError, RuntimeError, ValueError, LookupError, struct.error)


class EndedWhileGreeting(RuntimeError):
    """The connection ended while we said who we are. The answer may have been a refusal: kafka-python drops a last one."""


class Client:
    """Connections to the nodes of a cluster, served by a thread of their own."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        """Connect to one of the servers, say who we are, and learn the nodes. Raises what kafka-python raises, at once."""
        from kafka.net.compat import KafkaNetClient

        # Its lines repeat, several times a second, what every BrokerUnavailable says once.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._net_client: KafkaNetClient = KafkaNetClient(**arguments)
        self._manager = self._net_client._manager  # noqa: SLF001 - only its clients are public
        self._net = self._manager._net  # noqa: SLF001 - as above
        self._net.start()
        with ExitStack() as unless_connected:
            unless_connected.callback(self.close)
            self._manager.run(self._greet, arguments["bootstrap_timeout_ms"])
            self._manager.bootstrap(arguments["bootstrap_timeout_ms"])
            unless_connected.pop_all()

    async def _greet(self, timeout_ms: int) -> None:
        """A bootstrap of kafka-python tries again until its time is over, wrong passwords too; this tries each server once."""
        failure: Exception | None = None
        for node in self._manager.cluster.bootstrap_brokers():
            connection = self._manager.get_connection(
                node.node_id, timeout_ms=timeout_ms, pop_on_close=False, refresh_metadata_on_err=False
            )
            try:
                await connection
            except failures() as error:
                failure = error  # another server may take us
            else:
                return
        from kafka.errors import KafkaConnectionError

        if isinstance(failure, KafkaConnectionError):
            raise EndedWhileGreeting(str(failure)) from failure
        if failure is not None:
            raise failure

    def send(self, request: Any, node_id: int | None = None) -> Any:
        """The answer of a node, by default of any. Raises what kafka-python raises."""
        return self._manager.run(self._manager.send, request, node_id)

    def close(self) -> None:
        """End the connections and the thread."""
        with suppress(*failures()):  # A loop that has crashed raises its error again instead of ending.
            self._net_client.close()
        self._net.stop()
