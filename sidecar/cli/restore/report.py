"""What `restore` says it did, or would do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli.output import print_table, remark, size
from sidecar.logformat.names import TRANSACTION_STATE_TOPIC
from sidecar.plurals import plural

if TYPE_CHECKING:
    from pathlib import Path

    from sidecar.model import TopicPartition
    from sidecar.restore.gap_transactions import UnsettledTransaction
    from sidecar.restore.outcome import PartitionOutcome
    from sidecar.restore.restore import RestoreReport

_NAMED_MAX = 5


def as_json(report: RestoreReport) -> dict[str, Any]:
    """The stable JSON form, without its kind and version."""
    failed = {"error": report.no_room, "exit_code": report.exit_code} if report.no_room else {}
    return {
        **failed,
        "log_dir": str(report.log_dir),
        "free_bytes": report.free_bytes,
        "partitions": _rows(report),
        "not_archived": report.not_archived,
        "unfinished": report.unfinished,
        "retention": _retention_json(report),
    }


def _retention_json(report: RestoreReport) -> dict[str, Any] | None:
    policy = report.policy
    if not policy.is_retention_known:
        return None
    return {
        "cleanup_policy": sorted(policy.cleanup_policy or ()),
        "retention_ms": policy.retention_ms,
        "retention_bytes": policy.retention_bytes,
    }


def _rows(report: RestoreReport) -> list[dict[str, Any]]:
    rows = [outcome.to_json() for outcome in report.outcomes] + [found.to_json() for found in report.unreadable]
    return sorted(rows, key=lambda row: int(str(row["partition"])))


def show(report: RestoreReport, *, colors: bool, dry_run: bool) -> None:
    """A table, and below it what a person should know."""
    rows: list[tuple[object, ...]] = []
    for row in _rows(report):
        name = f"{row['topic']}-{row['partition']}"
        modes = (row["topic_id"], row["leader_epochs"], row["producer_state"])
        if row["problem"]:  # None of what was planned is there.
            rows.append((name, row["state"], *[None] * 5, *modes))
            continue
        end_offset = f"≤ {row['end_offset']}" if row["end_offset_is_upper_bound"] else row["end_offset"]
        counts = (row["segments"], row["segments_resumed"], size(row["bytes"]))
        rows.append((name, row["state"], row["start_offset"], end_offset, *counts, *modes))
    columns = ["partition", "", "from#", "to#", "segments#", "resumed#", "size#", "topic id", "epochs", "producers"]
    title = f"Plan for {report.log_dir} (nothing was done)" if dry_run else f"Restored into {report.log_dir}"
    print_table(title, columns, rows, colors=colors)
    for text in _remarks(report, dry_run=dry_run):
        remark(text)


def _remarks(report: RestoreReport, *, dry_run: bool) -> list[str]:
    texts = []
    if report.outcomes and all(outcome.is_done for outcome in report.outcomes):
        texts.append(
            "nothing to do: an earlier run restored these partitions with the same options, and their files have the same sizes"
        )
    texts += [
        f"{found.topic_partition} stopped: {found.problem}.{_stays(found.topic_partition, report.log_dir, dry_run)}"
        for found in report.unreadable
    ]
    if report.not_archived:
        texts.append(
            f"partitions {', '.join(map(str, report.not_archived))}: they are not in the archive, so nothing is "
            "restored. A broker creates them empty"
        )
    if report.unfinished:
        texts.append(
            f"{', '.join(report.unfinished)}: an earlier restore left this unfinished, and this command does not "
            "continue it. No broker starts while it is there: run that command again, or remove it"
        )
    if any(outcome.plan.topic_partition.topic == TRANSACTION_STATE_TOPIC for outcome in report.outcomes):
        texts.append(
            f"{TRANSACTION_STATE_TOPIC} can make producers fail, because it is older than the other topics or of another cluster: "
            "let no broker start with it. Without it, each transactional producer gets a new id"
        )
    if any(not outcome.problem for outcome in report.outcomes) and (text := _retention(report)):
        texts.append(text)
    for outcome in report.outcomes:
        texts += _of_partition(outcome, report.log_dir, dry_run=dry_run)
    return texts


def _of_partition(outcome: PartitionOutcome, log_dir: Path, *, dry_run: bool) -> list[str]:
    name, log, texts = outcome.plan.topic_partition, outcome.log, []
    if outcome.decisions.reason and not outcome.is_done:
        texts.append(f"{name}: {outcome.decisions.reason}")
    texts += [f"{name}: not in the archive, recorded as lost: {hole}" for hole in outcome.plan.lost]
    if (archived_to := outcome.plan.segments[-1].end_offset) < outcome.plan.end_offset and not outcome.problem:
        texts.append(
            f"{name}: its log continues at {outcome.plan.end_offset}, after the lost offsets; brokers do not assign "
            f"those again. Producer state is that at offset {archived_to}"
        )
    if outcome.plan.deleted_before_offset:
        texts.append(
            f"{name}: records below offset {outcome.plan.deleted_before_offset} were deleted on purpose on the "
            "broker and are left out; --deleted-records restore includes those that the archive has"
        )
    if outcome.plan.blank_below is not None:
        texts.append(
            f"{name}: producer state from below offset {outcome.plan.blank_below} is unknown, because the archive "
            "begins there or offsets are lost. Brokers do not recognise retries of batches from there, nor "
            "transactions that began there"
        )
    if outcome.empty_before_ms is not None:
        texts.append(
            f"{name}: its log is empty, because its first batch has a record later than --until-timestamp, of "
            f"{outcome.empty_before_ms}"
        )
    elif outcome.end_is_bound and not outcome.problem and not outcome.is_done:
        texts.append(
            f"{name}: the exact end in its last segment is known only after the download: `to` is an upper bound"
        )
    if count := outcome.plan.earlier_left_out:
        texts.append(
            f"{name}: left out above the log's end, although no record of theirs is later than --until-timestamp: "
            f"{plural(count, 'segment')}. A log is cut at an offset, before the first later record; --offset-range includes them"
        )
    if outcome.decisions.keeps_foreign_producers:
        texts.append(
            f"{name}: producer state is kept, but the topic in {log_dir} is another one or of another cluster, where the same "
            "producer ids may belong to other producers. Their first batches may fail with OUT_OF_ORDER_SEQUENCE, or be "
            "acknowledged as duplicates and lost; --producer-state drop avoids this"
        )
    if outcome.archive_goes_on_from is not None and not outcome.problem:
        texts.append(
            f"{name}: the archive of this topic reaches to {outcome.plan.state.end_offset}, this log ends below. "
            "The sidecar does not append new records of the broker to that archive. Archive this log under another "
            "prefix (store.url)"
        )
    if outcome.plan.asks_for_more:
        texts.append(f"{name}: the archive has fewer offsets than requested")
    if log and log.is_led_over:
        texts.append(
            f"{name}: its last batch ends below {log.added_from_offset}: an empty batch at that offset lets readers "
            "and followers reach the log's end"
        )
    if log and log.unsettled_transactions:
        texts.append(_unsettled(name, log.unsettled_transactions))
    if log and log.aborted:
        count = len(log.open_transactions)
        texts.append(
            f"{name}: {plural(count, 'transaction was', 'transactions were')} open at the end, ended by abort "
            "markers, one offset each: "
            f"{log.end_offset - count} to {log.end_offset - 1}"
        )
    if log and log.open_transactions and not log.aborted:
        texts.append(
            f"{name}: {plural(len(log.open_transactions), 'transaction is', 'transactions are')} open at the end, "
            "the first since offset "
            f"{log.open_transactions[0]}: read_committed readers wait there until `kafka-transactions.sh abort` "
            "ends them (or restore with --open-transactions abort). End them before their producers continue: the "
            "next commit of such a producer would show these records too, even aborted ones"
        )
    if outcome.problem:
        texts.append(f"{name} stopped: {outcome.problem}.{_stays(name, log_dir, dry_run)}")
    return texts


def _unsettled(name: TopicPartition, found: tuple[UnsettledTransaction, ...]) -> str:
    named = [f"of producer {each.producer_id} since offset {each.first_offset}" for each in found[:_NAMED_MAX]]
    more = f" and {len(found) - _NAMED_MAX} more" if len(found) > _NAMED_MAX else ""
    return (
        f"{name}: {plural(len(found), 'transaction was', 'transactions were')} open where offsets are lost, and "
        "the archive does not show their "
        f"outcome ({', '.join(named)}{more}). Abort markers among the lost offsets hide them from "
        "read_committed readers. read_uncommitted readers get the records that remain"
    )


def _retention(report: RestoreReport) -> str:
    """What the broker is going to delete again, or how to see that it is not; "" for nothing."""
    from sidecar.restore.request import shown_time

    topic, policy = report.outcomes[0].plan.topic_partition.topic, report.policy
    entity = f"--entity-type topics --entity-name {topic}"
    if not policy.is_retention_known:
        reason = f" ({policy.unanswered})" if policy.unanswered else ""
        return (
            f"retention of {topic} is not known here{reason}: a broker deletes restored records that are older than "
            "its retention, within minutes of its start. Before that, make sure that retention.ms and "
            f"retention.bytes are -1: `kafka-configs.sh --bootstrap-server HOST:PORT --describe --all {entity}`; or name a running "
            "broker of the cluster, and restore shows it: --bootstrap-server HOST:PORT"
        )
    whole = [outcome for outcome in report.outcomes if not outcome.problem]
    lost = [
        f"{outcome.plan.topic_partition} below offset {loss.end_offset} ({loss.segments} of "
        f"{plural(len(outcome.plan.segments), 'segment')})"
        for outcome in whole
        if (loss := outcome.retention).segments
    ]
    later = [
        (outcome.retention.next_ms, outcome.plan.topic_partition)
        for outcome in whole
        if outcome.retention.next_ms is not None and not outcome.retention.segments
    ]
    if lost:
        effect, until = f"within minutes of its start: {', '.join(lost)}", "Before it starts"
    elif later:
        first_ms, topic_partition = min(later)
        effect, until = f"the first segment of {topic_partition} at {shown_time(first_ms)}", "To keep it, before then"
    else:
        return ""
    return (
        f"retention of {topic} (retention.ms={policy.retention_ms}, retention.bytes={policy.retention_bytes}) makes the broker "
        f"delete {effect}. {until}: `kafka-configs.sh --bootstrap-server HOST:PORT "
        f"--alter {entity} --add-config retention.ms=-1,retention.bytes=-1`"
    )


def _stays(topic_partition: TopicPartition, log_dir: Path, dry_run: bool) -> str:
    from sidecar.restore.staging import staging_name

    name = staging_name(topic_partition)
    if dry_run or not (log_dir / name).exists():
        return ""
    return (
        f" {name} stays, and no broker starts while it is there. Remove the cause and run the "
        "same command again, or remove that directory"
    )
