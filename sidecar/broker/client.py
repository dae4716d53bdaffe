"""kafka-python's connections without its own clients, which hide why they could not be made."""

import copy
import logging
import struct
from contextlib import ExitStack, suppress
from typing import Any, Final

from sidecar.clock import Clock

FIRST_SERVER: Final = "bootstrap-0"
"""kafka-python's name for the first of the bootstrap servers, whichever broker that is."""
NODES_TRIED_MAX = 3
"""Where any node may answer."""
PAUSE_LOOK_S = 0.01


def failures() -> tuple[type[Exception], ...]:
    """What kafka-python raises where a broker does not answer, or not as it should."""
    from kafka.errors import KafkaError

    return (KafkaError, OSError, RuntimeError, ValueError, LookupError, struct.error)


class EndedWhileGreeting(RuntimeError):
    """The connection ended while we said who we are. The answer may have been a refusal: kafka-python drops a last one."""


class Client:
    """Connections to the nodes of a cluster, served by a thread of their own."""

    def __init__(self, arguments: dict[str, Any], clock: Clock) -> None:
        """Connect to one of the servers, say who we are, and learn the nodes. Raises what kafka-python raises, at once."""
        from kafka.net.compat import KafkaNetClient

        self._clock = clock
        self._timeout_s: float = arguments["request_timeout_ms"] / 1000
        # Its lines repeat, several times a second, what every BrokerUnavailable says once.
        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        self._net_client = KafkaNetClient(**arguments)
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

    def send(self, request: Any, node_id: int | str | None = None) -> Any:
        """The answer of a node, by default of any. The request stays as it is. Raises what kafka-python raises."""
        until_s = self._clock.monotonic_s() + self._timeout_s
        if node_id is None:
            return self._manager.run(self._ask_any, request, until_s)
        return self._manager.run(self._ask, request, node_id, until_s)

    async def _ask(self, request: Any, node_id: int | str, until_s: float, connect_ms: float | None = None) -> Any:
        connection = self._manager.get_connection(node_id, timeout_ms=connect_ms)
        # kafka-python refuses what is sent while a quota of the broker, or a long request of another thread, makes it wait.
        while connection.connected and connection.paused and self._clock.monotonic_s() < until_s:
            await self._net.sleep(PAUSE_LOOK_S)
        left_ms = (until_s - self._clock.monotonic_s()) * 1000
        # It writes version and number into the request, which may go to a node of another version next.
        return await connection.send_request(copy.copy(request), request_timeout_ms=left_ms)

    async def _ask_any(self, request: Any, until_s: float) -> Any:
        """A node that cannot be reached is no reason not to ask the next."""
        for _ in range(NODES_TRIED_MAX - 1):
            begun_s = self._clock.monotonic_s()
            try:
                return await self._ask(request, self._any_node(), until_s, (until_s - begun_s) * 500)
            except failures():
                if self._clock.monotonic_s() >= until_s:
                    raise
        return await self._ask(request, self._any_node(), until_s)

    def _any_node(self) -> Any:
        """One that is connected, else one that is not known to be away; None if there is no such node."""
        nodes = [node.node_id for node in self._manager.cluster.brokers()]
        connected = [node_id for node_id in nodes if self._net_client.connected(node_id)]
        return min(connected, key=self._net_client.in_flight_request_count, default=self._manager.least_loaded_node())

    def close(self) -> None:
        self._net.stop()
        # kafka-python forgets a socket that is being connected: it would stay open until the garbage is collected.
        waited_for = [key.fileobj for key in self._net._selector.get_map().values()]  # noqa: SLF001 - as above
        with suppress(*failures()):  # A loop that has crashed raises its error again instead of ending.
            self._net_client.close()
        for each in waited_for:
            each.close()
