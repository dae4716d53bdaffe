"""Structured logs on stderr: an event name and fields, as JSON or for people. No credentials, no record contents."""

import io
import logging
import re
import sys
from collections.abc import Iterable, Mapping, MutableMapping
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO, cast

from sidecar.config.model import LogFormat, LogSettings
from sidecar.config.secrets import REDACTED, without_credentials
from sidecar.event_log import FirstEvent

if TYPE_CHECKING:
    from structlog.typing import Processor

_SECRET_NAME = re.compile(r"secret|password|passwd|token|credential|authorization|access_key|signature", re.IGNORECASE)
_QUERY = re.compile(r"((?i:X-Amz-(?:Signature|Credential|Security-Token)|AWSAccessKeyId|Signature)=)[^&\s\"']+")
_SHORTEST_SECRET = 4
"""Shorter values would blot out innocent text, and are no secrets."""


def configure_logging(
    settings: LogSettings,
    *,
    secrets: Iterable[str] = (),
    stream: TextIO | io.TextIOBase | None = None,
    colors: bool = True,
) -> None:
    """Set up logging for this process, with the first event: ours, and the warnings of the libraries.

    Args:
        secrets: values that are blotted out wherever they turn up, e.g. in a library's error text; asked for at each event.
        stream: default stderr as it is now.
        colors: allow them, on a terminal.
    """
    global _current, _writes_json
    _current = Redaction(secrets)
    output = cast("TextIO", stream if stream is not None else sys.stderr)
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    on_terminal = output.isatty()
    _writes_json = settings.format is LogFormat.JSON or (settings.format is LogFormat.AUTO and not on_terminal)
    set_up = partial(_set_up, output, level, as_json=_writes_json, colors=colors and on_terminal)
    root = logging.getLogger()
    root.handlers[:] = [FirstEvent(set_up, level)]
    root.setLevel(max(level, logging.WARNING))  # at lower levels botocore logs requests with their headers
    # Its warnings say what an error of ours says: of a certificate for another name, with the whole certificate.
    logging.getLogger("urllib3.connection").setLevel(logging.ERROR)
    logging.captureWarnings(capture=True)


def _set_up(output: TextIO, level: int, *, as_json: bool, colors: bool) -> None:
    import structlog

    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        _current,
    ]
    renderer: Processor
    if as_json:
        renderer = structlog.processors.JSONRenderer(default=str)
    else:
        # The default formatter of tracebacks prints local variables, and with them records and keys.
        renderer = structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=output),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    logging.getLogger().handlers[:] = [handler]


def writes_json() -> bool:
    """Whether each line of this process's log is a JSON object: then those of its children must be, too."""
    return _writes_json


class Redaction:
    """A processor that takes secrets and raw bytes out of an event, at any depth."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """Args: secrets: iterated at each event, for those that change."""
        self._source = secrets
        self._secrets: tuple[str, ...] = ()
        self._look()

    def _look(self) -> None:
        known = {text for text in self._source if len(text) >= _SHORTEST_SECRET}
        if len(known) != len(self._secrets) or not known.issuperset(self._secrets):
            self._secrets = tuple(sorted(known, key=len, reverse=True))

    def __call__(self, _logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        self._look()
        return {name: self._clean(name, value) for name, value in event.items()}

    def _clean(self, name: str, value: Any) -> Any:
        if value is None or isinstance(value, bool | int | float):
            return REDACTED if value and _SECRET_NAME.search(name) and not isinstance(value, bool) else value
        if _SECRET_NAME.search(name):
            return REDACTED
        if isinstance(value, bytes | bytearray | memoryview):
            return f"<{len(value)} bytes>"
        if isinstance(value, Mapping):
            return {str(key): self._clean(str(key), inner) for key, inner in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [self._clean("", inner) for inner in value]
        return self._text(str(value))

    def text(self, text: str) -> str:
        self._look()
        return self._text(text)

    def _text(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, REDACTED)
        return _QUERY.sub(rf"\1{REDACTED}", without_credentials(text))


_current = Redaction()
_writes_json = False


def redacted(text: str) -> str:
    """The text without the secrets that this process knows of, as its logs are."""
    return _current.text(text)
