"""What Helm refuses, so that it is not the sidecar that ends, archives nothing, or cannot be reached."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.helm.charts import NEEDED, HelmFailed, rendered

pytestmark = pytest.mark.real

SERVERS = "settings.broker.connection.bootstrap_servers"
ARCHIVE = {"settings.store.url": NEEDED["settings.store.url"]}


@pytest.mark.parametrize(
    "value",
    [
        "settings.store.urll=s3://b/p",
        "settings.stores.url=x",
        "images.tag=1",
        "image.tags=1",
        "image.tag=1:2",
        "settings.store.s3.secret_access_key=abc",
        "settings.store.s3.part_bytes=many",
        "settings.run.workers=0",
        "recipes.for=strimsi",
        "recipes.hosts.strimzi.runAsUser=0",
        "inject.engine=none",
        "inject.strimzi.enabled=maybe",
        "sidecar.extraEnv[0].vaule=x",
        "sidecar.extraVolumeMounts[0].path=/a",
        "sidecar.resources.limit.cpu=1",
        "sidecar.workVolume.emptydir.sizeLimit=1Gi",
        "backfill.brokers[0].name=0",
        "podMonitor.enabled=maybe",
        "fullnameOverride=My_Archive",
        "nameOverride=archive-",
        "recipes=null",
        "sidecar=null",
        "inject.webhook=null",
        "recipes.hosts.plain.logDirs=",
    ],
)
def test_values_that_nothing_knows_are_refused(value: str) -> None:
    path, _, given = value.partition("=")
    with pytest.raises(HelmFailed, match="values don't meet the specifications of the schema"):
        rendered({**NEEDED, path: given})


@pytest.mark.parametrize(("text", "missing"), [("settings:\n", "'settings'"), ("settings: {store: }\n", "'store'")])
def test_a_section_without_anything_below_it_is_refused(text: str, missing: str, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text(text)
    with pytest.raises(HelmFailed, match=rf"missing property {missing}"):
        rendered(files=[values])


def test_an_archive_must_be_named() -> None:
    with pytest.raises(HelmFailed, match=r"settings.store.url is required"):
        rendered()
    with pytest.raises(HelmFailed, match=r"backfill.brokers is empty"):
        rendered({**NEEDED, "backfill.enabled": "true"})


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"settings.store.url": "s3://user:secret@bucket/p"}, "settings.store.url must not carry credentials"),
        ({"settings.store.url": "s3://b/prefix"}, "settings.store.url is s3://b/prefix: a bucket has 3 to 63 letters"),
        ({"settings.broker.log_dirs": "{/data}"}, "the containers do not read settings.broker.log_dirs"),
        ({"settings.broker.assume_leader": "true"}, "remove one of them"),
        ({"settings.topics.exclude": "{tmp-.*,a(b}"}, "settings.topics.exclude: a(b is not a regular expression"),
        ({"settings.topics.policies[0].pattern": "["}, "settings.topics.policies: [ is not a regular expression"),
        ({"settings.store.url": "s3:key:secret@bucket/prefix"}, "settings.store.url must not carry credentials"),
        ({"settings.http.bind": "127.0.0.1:9308"}, "settings.http.bind is 127.0.0.1:9308, which the liveness probe"),
        ({"settings.http.bind": "0.0.0.0:0"}, "settings.http.bind is 0.0.0.0:0, which the liveness probe"),
        ({"settings.http.bind": "0.0.0.0:65536"}, "settings.http.bind is 0.0.0.0:65536, which the liveness probe"),
        (
            {"settings.run.state_dir": "/data/state"},
            "settings.run.state_dir: /data/state is not below /var/lib/tiered-s",
        ),
        (
            {"settings.spark.local_dir": "spark"},
            "settings.spark.local_dir: spark is not below /var/lib/tiered-sidecar,",
        ),
        ({"settings.http.bind": "null"}, "settings.http.bind is null, so there is no server"),
        (
            {"recipes.hosts.cfk.logDirs": "{/mnt/data/data0/logs,/mnt/data/data1/logs}"},
            "logDirs: /mnt/data/data1/logs is not",
        ),
        (
            {"recipes.hosts.plain.logDirs": "{/var/lib/kafka/data-1}"},
            "plain.logDirs: /var/lib/kafka/data-1 is not below",
        ),
        (
            {"recipes.hosts.plain.logDirs": "{kafka/logs}"},
            "recipes.hosts.plain.logDirs: kafka/logs is not below a mountPath",
        ),
        ({"sidecar.extraEnv[0].name": "NUMBA_CACHE_DIR"}, "the variable NUMBA_CACHE_DIR is already set"),
        ({"sidecar.extraEnv[0].name": "A", "sidecar.extraEnv[1].name": "A"}, "the variable A is already set"),
    ],
)
def test_settings_that_cannot_work_in_a_pod_are_refused(values: dict[str, str], message: str) -> None:
    with pytest.raises(HelmFailed, match=re.escape(message)) as refused:
        rendered({**NEEDED, **values})
    assert "secret@" not in str(refused.value).partition("Error:")[2]


@pytest.mark.parametrize(
    "url", ["bucket/prefix", "s3:bucket/prefix", "s3//bucket", "/archive", "file:///archive", "/mnt/../tmp", "/mnt2/a"]
)
def test_a_directory_that_would_end_with_the_pod_is_no_archive(url: str) -> None:
    mount = {"sidecar.extraVolumeMounts[0].name": "nfs", "sidecar.extraVolumeMounts[0].mountPath": "/mnt/"}
    with pytest.raises(HelmFailed, match=f"settings.store.url is {url}, a directory that no entry of sidecar.extraVol"):
        rendered({**NEEDED, **mount, "settings.store.url": url})
    for mounted in ("/mnt", "/mnt/a", "file:///mnt/a", "gs://bucket/a"):
        assert rendered({**NEEDED, **mount, "settings.store.url": mounted})


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            {"name": "b", "logDirs": "{/var/lib}"},
            "logDirs of b: /var/lib is not below /data, where its claim is mounted",
        ),
        ({"name": "a", "logDirs": "{/data/logs}"}, "two entries have the name a, and so would their jobs"),
    ],
)
def test_jobs_of_backfill_that_could_not_work_are_refused(second: dict[str, str], message: str) -> None:
    brokers = [{"name": "a", "claim": "data-0", "logDirs": "{/data}"}, {"claim": "data-1", **second}]
    values = {f"backfill.brokers[{at}].{name}": given for at, one in enumerate(brokers) for name, given in one.items()}
    with pytest.raises(HelmFailed, match=message):
        rendered({**NEEDED, **values, "backfill.enabled": "true"})


def test_a_log_dir_may_be_on_an_additional_volume() -> None:
    mount = {"sidecar.extraVolumeMounts[0].name": "data-1", "sidecar.extraVolumeMounts[0].mountPath": "/data-1"}
    assert rendered({**NEEDED, **mount, "recipes.hosts.plain.logDirs": "{/var/lib/kafka/data/logs,/data-1/logs}"})


@pytest.mark.parametrize("of_what", [{}, {"recipes.enabled": "false", "backfill.enabled": "true"}])
def test_somebody_must_say_who_leads(of_what: dict[str, str]) -> None:
    brokers = {
        "backfill.brokers[0].name": "a",
        "backfill.brokers[0].claim": "data",
        "backfill.brokers[0].logDirs": "{/data}",
    }
    values = {**ARCHIVE, **brokers, **of_what}
    with pytest.raises(
        HelmFailed, match="nothing says which partitions the broker leads, so nothing would be archived"
    ):
        rendered(values)
    assert rendered({**values, SERVERS: "{localhost:9092}"})
    assert rendered({**values, "settings.broker.assume_leader": "true"})
    variable = "TIERED_SIDECAR__BROKER__CONNECTION__BOOTSTRAP_SERVERS"
    assert rendered({**values, "sidecar.extraEnv[0].name": variable, "sidecar.extraEnv[0].value": "[localhost:9092]"})


@pytest.mark.parametrize(
    "pattern", ["(?!tmp-).*", "orders|payments", r"(?P<team>[a-z]+)-.*", r"a++", r"orders\\Z", r"(a)\\1"]
)
def test_patterns_that_only_the_program_can_read_are_left_to_it(pattern: str) -> None:
    re.compile(pattern.replace("\\\\", "\\"))
    assert rendered({**NEEDED, "settings.topics.include[0]": pattern})
