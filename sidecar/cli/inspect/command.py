"""`inspect`: what is in a file of a broker, or in an object of an archive."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_json, print_line, print_listing, shown
from sidecar.plurals import plural

if TYPE_CHECKING:
    from sidecar.cli.inspect.file_kinds import Content

TEXT_CHARACTERS = 60
"""Of a key or value in a table; JSON has all of it."""


def inspect(
    options: GlobalOptions,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL|KEY",
            help="A file's path or URL: s3://bucket/…, or any that fsspec can read. With --archive an object's key.",
        ),
    ],
    archive: Annotated[str | None, typer.Option(metavar="URL", help="The archive that contains KEY.")] = None,
    records: Annotated[
        bool, typer.Option("--records", help="For a .log: print every record instead of every batch.")
    ] = False,
    base_offset: Annotated[
        int | None,
        typer.Option(
            metavar="OFFSET",
            min=0,
            max=2**63 - 1,
            help="Base offset of the segment, if the file name does not contain it.",
        ),
    ] = None,
) -> int:
    """Show the content of a segment, an index, a snapshot, a checkpoint, or an object of an archive.

    The file's name gives its kind. Entries before a damaged place are printed; the damage is reported on stderr, and
    the exit code is 3. For s3:// URLs, endpoint, credentials, region and TLS come from the settings, section store.s3.
    """
    if archive is not None:
        content = _from_archive(options, archive, target, records=records)
    elif "://" in target:
        content = _from_url(options, target, records=records, base_offset=base_offset)
    else:
        content = _from_disk(target, records=records, base_offset=base_offset)
    if options.json:
        for found in ([] if content.whole is None else [content.whole], content.rows):
            for row in found:
                print_json(row)
    elif content.whole is not None:
        _print_whole(content.whole)
    else:
        _print_rows(content.rows)
    return 0


def _from_archive(options: GlobalOptions, archive: str, key: str, *, records: bool) -> Content:
    settings = options.settings({"store.url": archive})
    from sidecar.cli.inspect.archived_files import archived_content
    from sidecar.storage.opening import open_to_read

    return archived_content(open_to_read(settings.store), key, records=records)


def _from_url(options: GlobalOptions, url: str, *, records: bool, base_offset: int | None) -> Content:
    from sidecar.cli.inspect.file_kinds import path_of_url, place_in_archive

    path = path_of_url(url)
    if path is not None:
        return _from_disk(path, records=records, base_offset=base_offset)
    place = place_in_archive(url)
    if place is not None:
        return _from_archive(options, *place, records=records)
    settings = options.settings({"store.url": url})
    from sidecar.cli.inspect.archived_files import stored_content
    from sidecar.storage.opening import open_file

    return stored_content(*open_file(settings.store), records=records, base_offset=base_offset)


def _from_disk(target: str, *, records: bool, base_offset: int | None) -> Content:
    from sidecar.cli.inspect.file_kinds import archive_of, content_of, require_file

    require_file(Path(target))
    place = archive_of(Path(target))
    if place is None:
        return content_of(Path(target), records=records, base_offset=base_offset)
    from sidecar.cli.inspect.archived_files import archived_content
    from sidecar.storage.opening import open_store
    from sidecar.store_settings import StoreSettings

    directory, key = place
    return archived_content(open_store(StoreSettings(url=str(directory))), key, records=records)


def _print_whole(whole: Mapping[str, Any]) -> None:
    entries = whole.get("entries")
    if isinstance(entries, list):
        print_line(f"{whole['kind']}, version {whole['version']}, {plural(len(entries), 'entry', 'entries')}")
        print_listing(iter(entries))
        return
    for name, value in whole.items():
        print_line(f"{name}: {json.dumps(value, indent=2) if isinstance(value, dict | list) else shown(value)}")


def _print_rows(rows: Any) -> None:
    for part, of_part in groupby(rows, key=lambda row: row.get("part")):
        if part is not None:
            print_line(f"[{part}]")
        print_listing(_readable(of_part))


def _readable(rows: Iterator[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    for row in rows:
        readable = {name: value for name, value in row.items() if name != "part"}
        for name in ("key", "value"):
            if name in readable:
                readable[name] = _text(readable[name])
        if isinstance(readable.get("crc"), int):
            readable["crc"] = f"{readable['crc']:08x}"  # as in every message
        if "headers" in readable:
            readable["headers"] = [f"{name}={_text(value)}" for name, value in readable["headers"]]
        yield readable


def _text(encoded: str | None) -> str | None:
    if encoded is None:
        return None
    text = base64.b64decode(encoded).decode("utf-8", "replace")
    return text if len(text) <= TEXT_CHARACTERS else f"{text[:TEXT_CHARACTERS]}…"
