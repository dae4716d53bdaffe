"""What an interrupted `restore` leaves, as it lies in the log dir: of this run and of those before it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli.answering import JSON_VERSION

if TYPE_CHECKING:
    from sidecar.restore.request import RestoreRequest

_EXIT_KEYBOARD = 130


def tell_what_stays(request: RestoreRequest, interruption: BaseException, *, json: bool) -> None:
    """A remark, and with `json` one JSON object on stdout. Args: interruption: KeyboardInterrupt, or SystemExit with its code."""
    from sidecar.cli.output import print_json, remark

    partitions = _unfinished(request)
    names = [str(found["directory"]) for found in partitions]
    if names:
        told = (
            f"interrupted: {', '.join(names)} in {request.log_dir} {'stay' if len(names) > 1 else 'stays'}, and no broker starts "
            f"beside what is unfinished. Run the same command again, which goes on there, or remove what is named"
        )
    else:
        told = f"interrupted: nothing unfinished is in {request.log_dir}"
    remark(told)
    if json:
        code = interruption.code if isinstance(interruption, SystemExit) else _EXIT_KEYBOARD
        answer = {"kind": "restore", "version": JSON_VERSION, "error": told, "exit_code": code, "interrupted": True}
        answer |= {"log_dir": str(request.log_dir), "finished": _finished(request), "unfinished": partitions}
        print_json({**answer, "resumable": bool(names)})


def _unfinished(request: RestoreRequest) -> list[dict[str, Any]]:
    """Staging directories, with the segments that are whole in them."""
    from sidecar.restore.staging import StagedPartition, unfinished

    rows = []
    for name, partition in unfinished(request.log_dir, request.topic).items():
        sizes = StagedPartition(request.log_dir, partition).sizes()
        logs = [size_bytes for file, size_bytes in sizes.items() if file.endswith(".log") and size_bytes]
        rows.append(
            {"partition": partition.partition, "directory": name, "segments": len(logs), "log_bytes": sum(logs)}
        )
    return rows


def _finished(request: RestoreRequest) -> list[str]:
    """Directories that have their names already, while the command was not through."""
    from sidecar.restore.target import CommandNote

    return sorted(path.name for path in CommandNote(request.log_dir, request.topic).finished())
