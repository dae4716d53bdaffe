"""`docs/reference/events.md`: all log events at WARNING and above with their fields, from the code, and what they mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

SIDECAR = Path(__file__).parents[1] / "sidecar"
LEVELS = ("warning", "error", "critical")

MEANINGS: dict[str, tuple[str, str]] = {
    "abort_marker_added": (
        "The broker's cleaner took a transaction marker. An added abort marker hides aborted or superseded records, or tombstones.",
        "None. Archive compacted topics more often than `delete.retention.ms`.",
    ),
    "answer_damaged": (
        "An object seemed damaged, and was sound when it was read again.",
        "Check the network, proxies and the store: something changes bytes on their way.",
    ),
    "archive_cache_recreated": (
        "The archive cache in `run.state_dir` is damaged, and a new one was created. It no longer notices missing newest commits.",
        "Check the disk. Do not run `gc` by hand if the bucket may have lost objects.",
    ),
    "archive_is_new": (
        "Nothing of this cluster is in the archive yet. The first upload begins a new one.",
        "If the cluster has an archive already, stop, and correct `store.url` or the cluster id.",
    ),
    "archived_without_compaction": (
        "Segments of a topic with `before_upload` were archived as the broker wrote them. Nothing is lost.",
        "See `detail` and `remedy`.",
    ),
    "before_upload_not_applied": (
        "`backfill` archives segments of this topic as they are.",
        "Run the command in `remedy` afterwards.",
    ),
    "broker_cleaner_stalled": (
        "The broker's own log cleaner does not progress on a partition. The archive is not affected.",
        "Check the broker's log for `uncleanable`. A dead cleaner thread needs a broker restart.",
    ),
    "broker_permission_denied": (
        "The broker refuses a permission. Less is archived or watched.",
        "Grant the ACL in `right`.",
    ),
    "broker_unreachable": (
        "The broker does not answer, or refuses the connection. Nothing new is archived.",
        "See `error`: check the broker, `broker.connection` and the network.",
    ),
    "checkpoint_ignored": (
        "A checkpoint is damaged, and was ignored. The commits have the same state.",
        "Check the store for damage with `verify --deep`. If it finds nothing else, delete the object that `key` names.",
    ),
    "checkpoint_not_written": (
        "A checkpoint of the archive was not written. Reads cost more requests.",
        "None: it is retried.",
    ),
    "clock_differs_from_store": (
        "The clocks of this host and of the store differ by more than a minute.",
        "Synchronise the host's clock.",
    ),
    "command_config_keys_unused": (
        "Keys of the `client.properties` have no effect here.",
        "None, or remove the keys in `keys`.",
    ),
    "compaction_backoff": (
        "Compactions failed repeatedly. All of them wait.",
        "See `error`; retried after `next_try_s`.",
    ),
    "compaction_changes_strategy": (
        "The next compaction of this partition uses another strategy.",
        "None if it is intended. Otherwise correct the topic's entry before the compaction commits, or undo it.",
    ),
    "compaction_crashed": (
        "A fault of the program ended a compaction job. The archive stays as it was; uploads go on.",
        "Report it with the stack trace.",
    ),
    "compaction_ended_early": (
        "A compaction job failed after it had committed some partitions. The others stay as they were.",
        "See the error that follows.",
    ),
    "compaction_fenced": (
        "Another broker leads the partition now. Nothing was committed.",
        "None: the leader's sidecar compacts the partition.",
    ),
    "compaction_header_not_named": (
        "The topic's config has the strategy `header` without the name of a header. Records are compared by offset.",
        "Set `header` in the topic's entry of `compaction.topics`.",
    ),
    "compaction_interrupted": (
        "A running compaction was ended by a shutdown or a reload. Partitions without a commit stay as they were.",
        "None.",
    ),
    "compaction_job_failed": ("A job failed as a whole. It is retried with fewer partitions.", "See `error`."),
    "compaction_rules_overridden": ("`--override` was used against the settings.", "None if it is intended."),
    "compaction_superseded": (
        "The topic's rule changed during a compaction. Nothing was committed.",
        "None: it is compacted by the new rule.",
    ),
    "compaction_unkeyed_or_malformed": (
        "A compaction dropped records without a key, or read malformed versions.",
        "Correct the producers; see `remedy`.",
    ),
    "config_reload_refused": (
        "The changed settings were refused as a whole. The old ones stay.",
        "Correct the file, or restart if `settings` need it.",
    ),
    "crashed": (
        "A fault of the program ended the process. With `--retry-start` it starts again.",
        "Report it with the stack trace.",
    ),
    "cycle_failed": (
        "A cycle ended with an error before any partition was planned. Nothing new is archived or pinned.",
        "See `error`. It is retried at the next scan.",
    ),
    "deleted_before_archived": (
        "DeleteRecords removed offsets that were not archived. The archive names the gap.",
        "None if it was intended.",
    ),
    "deleted_records_unknown": (
        "A segment cannot be read, so it is unknown whether records were deleted. Archiving goes on.",
        "Check the segment with `inspect`; `verify` names damage in the archive.",
    ),
    "deletes_may_be_missing": (
        "The broker's cleaner may have taken tombstones before they were archived. Deleted keys may stay in the archive.",
        "If this matters, archive the topic from its beginning under another `store.url`.",
    ),
    "drain_timed_out": (
        "The process ended before it was drained. Unfinished uploads are in the journal and resume at the next start.",
        "None, or raise `run.drain_timeout_s`.",
    ),
    "dropped_producers_note_unreadable": (
        "`restored-without-producers.json` cannot be read, and is ignored.",
        "Restore the file, or delete it.",
    ),
    "engine_is_local": ("Spark was requested, but this work runs in this process.", "See `reason`."),
    "group_compaction_crashed": (
        "A fault of the program ended a compaction before the upload. Segments are archived as they are.",
        "Report it with the stack trace.",
    ),
    "hanging_transaction": (
        "A transaction has been open for a long time (`open_s`). Nothing above it is archived.",
        "`kafka-transactions.sh find-hanging`, then `abort`.",
    ),
    "hidden_transaction_may_be_committed": (
        "As `abort_marker_added`, but the hidden records may be committed: retention deleted them from the broker's log.",
        "If you need them, restore the topic and read it with `read_uncommitted`, before a compaction removes them.",
    ),
    "http_connections_refused": (
        "Too many connections to the HTTP port, or to the webhook.",
        "Find the client, or raise `http.max_connections`.",
    ),
    "http_request_failed": (
        "A fault of the program in an HTTP answer. Archiving goes on.",
        "Report it with the stack trace.",
    ),
    "http_not_listening": (
        "A start failed, and the address for the status page cannot be used meanwhile.",
        "Correct `http.bind`, or free the port.",
    ),
    "http_token_not_read": ("The token file cannot be read. Every request is refused.", "Correct `http.token_file`."),
    "injection_failed": (
        "The webhook could not read a review or what it injects. The pod is created without the sidecar.",
        "Correct what `error` says, and roll the pod. `k8s missing` lists such pods.",
    ),
    "journal_copied": (
        "`run.state_dir` is a copy. Its unfinished uploads are left alone: a sidecar with the original may commit them.",
        "None if you moved it: `gc` deletes these uploads after a day. Otherwise give each sidecar its own directory.",
    ),
    "journal_recreated": (
        "The journal was damaged, and a new one was created. Unfinished uploads become orphans.",
        "None: `gc` deletes them after a day. Check the disk.",
    ),
    "log_dirs_not_usable": ("No log directory is formatted or readable. Nothing is archived.", "See `error`."),
    "log_dirs_not_watched": ("File-system events are not available. Scans find everything.", "None."),
    "lost_offsets_on_disk": (
        "The archive ends with LOST offsets. The log was truncated there, and has assigned the same offsets again.",
        "Archive this log under another prefix.",
    ),
    "memory_limit_too_low": (
        "The container's memory limit is too low for these settings. Compactions may be killed.",
        "Raise the limit; see `reason`.",
    ),
    "meta_properties_without_ids": (
        "A `meta.properties` has neither a cluster id nor a broker id, unlike that of another log dir. Archiving goes on.",
        "Restore the file that `file` names from a backup, or from the pattern of the broker's other log dirs.",
    ),
    "missing_offsets_accepted_as_compacted": (
        "Offsets are missing, and the topic is or was compacted: they do not count as a gap.",
        "None if the topic was ever compacted. Otherwise restore the missing `.log` files from a replica.",
    ),
    "no_topic_selected": (
        "The patterns select no topic here.",
        "See `reason`: correct the patterns, or the permissions.",
    ),
    "nothing_will_be_archived": (
        "Nothing says which partitions this broker leads.",
        "Set `broker.connection`, or `broker.assume_leader`.",
    ),
    "offsets_lost": (
        "Records were deleted before they were archived. The range is recorded as LOST, or only this line reports it.",
        "Find out why uploads were late; raise the topic's retention.",
    ),
    "partition_not_compacted": ("A partition failed, and is quarantined. The others go on.", "See `error`."),
    "partition_stopped": (
        "A partition cannot continue. Until it does, retention may delete what it has not archived. The others go on.",
        "See `error` and `/status`.",
    ),
    "periodic_task_failed": (
        "A periodic task failed, for example `gc`.",
        "See `error`. It is retried after `next_try_s`.",
    ),
    "pinned_segment_released": (
        "A pinned file was released before it was archived. If the file was deleted, the archive lacks its records.",
        "None if you deleted the topic. Else see `reason`: free disk space, bring the store back, or copy a deleted file back.",
    ),
    "pinned_segments_released": (
        "Only pinned files had these segments when the process ended. Unless another replica has them, their records are lost.",
        "Check `tiered_sidecar_pinned_deleted_bytes` before a restart. The next start reports lost offsets, or stops at the gap.",
    ),
    "producer_snapshot_mismatch": (
        "The broker's producer snapshot differs from a replay of the log. The archive has the replayed one.",
        "Run `snapshots check`; keep the file for a report to Kafka.",
    ),
    "records_deleted": (
        "The archive notes that DeleteRecords removed records.",
        "None if it was intended. `restore` leaves them out.",
    ),
    "scan_problem": (
        "A directory cannot be read. Its partitions are not archived.",
        "See `error`: it says which permission, disk or limit to correct.",
    ),
    "segments_delayed": (
        "Rolled segments have waited for five minutes for one reason.",
        "See `reason`: an open transaction, the high watermark, no leader, or a leader that does not report offsets.",
    ),
    "store_keys_not_read": (
        "A file with an access key of the store cannot be read. Requests are signed with the previous keys.",
        "See `error`. Correct the file: the next request reads it.",
    ),
    "segments_not_pinned": (
        "More segments are ready for upload than can be pinned. Retention may delete the others before they are archived.",
        "Bring the store back. Raise the process's open-file limit, or the retention of the topics.",
    ),
    "store_function_missing": (
        "The store lacks an optional function.",
        "See `finding`. Set a lifecycle rule if it cannot list uploads.",
    ),
    "replicas_not_seen": (
        "The broker has replicas that are not in the log directories as this process sees them. They are not archived.",
        "Mount the broker's volume as `remedy` says.",
    ),
    "state_dir_deleted": (
        "The directory in `run.state_dir` was deleted. Archiving goes on. The next start does not know the newest commits.",
        "Restart once `tiered_sidecar_pinned_deleted_bytes` is 0. Do not run `gc` by hand if the bucket may have lost objects.",
    ),
    "start_failed": (
        "A start failed. With `--retry-start` the process stays up and starts again. Nothing is archived or pinned.",
        "See `error`. A change of the settings file triggers the next start at once.",
    ),
    "store_not_responding": (
        "A request to the store has no answer for 10 s. Segments stay pinned, unless `effect` says otherwise.",
        "Bring the store back before retention deletes data.",
    ),
    "store_not_usable": (
        "The store refuses or does not answer at the start. Nothing is archived or pinned.",
        "Correct keys, permissions or `store.url`, or bring the store back.",
    ),
    "topic_config_unknown_value": (
        "A topic config has an unknown value, and is ignored.",
        "Correct the config on the broker.",
    ),
    "topic_not_compacted": ("A topic that `compaction.topics` names is not compacted.", "See `reason`."),
    "unfinished_uploads_not_listed": (
        "The store does not list unfinished uploads, or refuses it.",
        "Let a lifecycle rule of the bucket abort them.",
    ),
    "unused_objects_not_deleted": (
        "Unused objects were not deleted. They cost money; the archive is safe.",
        "See `error`.",
    ),
    "waiting_for_store": ("`backfill` waits for the store's first answer.", "Check the network and the store."),
    "webhook_certificate_unreadable": (
        "The webhook's new certificate or key cannot be read. The loaded one stays in use.",
        "None if it happens once, while the files are replaced. Else check the Secret.",
    ),
    "webhook_connection_failed": (
        "A TLS connection to the webhook failed.",
        "If brokers lack the sidecar, check that `caBundle` fits the certificate.",
    ),
}
"""By name: what it means for the data, and what to do."""


@dataclass(frozen=True)
class LogEvent:
    """A name with all levels and fields that the code gives it."""

    name: str
    levels: tuple[str, ...]
    fields: tuple[str, ...]


BELOW_WARNING: dict[str, tuple[str, str]] = {
    "all_segments_pinned": ("The shortage that `segments_not_pinned` reported is over.", "None."),
    "broker_reachable": ("The broker answers again.", "None."),
    "compaction_strategy_changed": (
        "A compaction by another strategy than before is committed.",
        "None if it was intended.",
    ),
    "compaction_waits": ("A partition is not compacted for now.", "See `reason`."),
    "segment_committed": (
        "A segment is in the archive. It also has `topic`, `partition`, `base_offset`, `end_offset` and `size_bytes`.",
        "None.",
    ),
    "segments_wait_over": ("The wait that `segments_delayed` reported is over.", "None. `now` has what follows."),
    "store_keys_changed": (
        "The files of the store's keys have new content. The next request is signed with the new keys.",
        "None.",
    ),
    "store_probe_limited": (
        "The upload limit makes the probe of the store last longer than a second.",
        "Wait for `about_s` seconds, or raise `store.bandwidth_bytes_per_s`.",
    ),
    "store_responding": ("The store answers again.", "None."),
}
"""Those at INFO that other pages name: what it means for the data, and what to do."""


def log_events(shown_levels: tuple[str, ...] = LEVELS) -> list[LogEvent]:
    """All of these levels, by name."""
    levels: dict[str, set[str]] = {}
    fields: dict[str, dict[str, None]] = {}
    for name, level, names in _logged(shown_levels):
        levels.setdefault(name, set()).add(level)
        fields.setdefault(name, {}).update(dict.fromkeys(names))
    return [
        LogEvent(name, tuple(sorted(levels[name], key=shown_levels.index)), tuple(fields[name]))
        for name in sorted(levels)
    ]


def events_page(note: str) -> str:
    """The page, with the note that says who writes it."""
    lines = ["# Log events", "", note, ""]
    lines += ["Each log line is one JSON object: `event`, `level`, `timestamp` (UTC), and the fields below."]
    lines += ["This page has all events at WARNING and above. [Terms](terms.md) explains the words.", ""]
    lines += ["| Event | Level | Meaning | What to do | Fields |", "|---|---|---|---|---|"]
    for event in log_events():
        meaning, action = MEANINGS[event.name]
        shown = ", ".join(f"`{field}`" for field in event.fields)
        lines.append(f"| `{event.name}` | {', '.join(event.levels)} | {meaning} | {action} | {shown} |")
    lines += ["", "## Below WARNING", "", "These are at INFO. Other pages name them.", ""]
    lines += ["| Event | Meaning | What to do | Fields |", "|---|---|---|---|"]
    at_info = {event.name: event for event in log_events(("info",))}
    for name, (meaning, action) in BELOW_WARNING.items():
        shown = ", ".join(f"`{field}`" for field in at_info[name].fields) or "-"
        lines.append(f"| `{name}` | {meaning} | {action} | {shown} |")
    return "\n".join(lines) + "\n"


def _logged(shown_levels: tuple[str, ...]) -> Iterator[tuple[str, str, list[str]]]:
    """Name, level and fields of each call that logs with a constant name; of helpers that take the name, what is given to them."""
    for text, node in _calls_with_text():
        fields = [word.arg for word in node.keywords if word.arg]
        if isinstance(node.func, ast.Name) and node.func.id == "tell" and shown_levels == LEVELS:
            yield text, "warning", fields  # topic_counts: the level depends on the reason.
            yield text, "error", fields
        elif not isinstance(node.func, ast.Attribute):
            continue
        elif node.func.attr in shown_levels and text.isidentifier():
            yield text, node.func.attr, fields
        elif node.func.attr == "_report_once" and "warning" in shown_levels:
            yield text, "warning", ["reason", "effect"]


@cache
def _calls_with_text() -> tuple[tuple[str, ast.Call], ...]:
    """All calls in the program whose first argument is a constant text. To parse the program takes a second."""
    found = []
    for path in sorted(SIDECAR.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    found.append((first.value, node))
    return tuple(found)
