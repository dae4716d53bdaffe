"""`make image-test`: builds the image and runs it as a user without rights on a read-only root file system.

Every step is the product's own command in the image; the first that does not do what it should ends the check.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.golden import golden
from tests.image.build import build, compressed_bytes, mounted, require_tools

USER_ID = 1001
NAMELESS_USER_ID = 1000650000
"""As OpenShift gives them: /etc/passwd of the image does not have it."""
START_LIMIT_S = 2.0
TIMEOUT_S = 300.0
NOW_MS = "1800000000000"
PROGRAM = ("/usr/bin/tini", "-s", "-g", "--", "tiered-sidecar")
# As in a pod: these, and what the Dockerfile sets.
_ENVIRONMENT = {
    "PATH": "/opt/tiered-sidecar/bin:/opt/java/bin:/usr/local/bin:/usr/bin:/bin",
    "JAVA_HOME": "/opt/java",
    "HOME": "/tmp",
    "XDG_CACHE_HOME": "/opt/tiered-sidecar/cache",
    "NUMBA_CACHE_DIR": "/tmp/kernels",
    "PYTHONDONTWRITEBYTECODE": "1",
    "LANG": "C.UTF-8",
}


class Box:
    """The image's root, read-only, with a writable /tmp and /archive, a broker's directory at /data, and loopback alone."""

    def __init__(self, root: Path, work: Path, user: int = USER_ID) -> None:
        self._root, self._work, self._user = root, work, user
        for name in ("tmp", "archive"):
            (work / name).mkdir(parents=True)
            os.chown(work / name, user, 0)

    def command(self, *arguments: str) -> list[str]:
        """The command line that runs these in the box."""
        binds = ["--ro-bind", str(self._root), "/", "--proc", "/proc", "--dev", "/dev"]
        binds += ["--bind", str(self._work / "tmp"), "/tmp", "--bind", str(self._work / "archive"), "/mnt"]
        binds += ["--ro-bind", str(golden("2.7.2") / "logs"), "/srv", "--ro-bind", "/etc/hosts", "/etc/hosts"]
        variables = [word for name, value in _ENVIRONMENT.items() for word in ("--setenv", name, value)]
        isolation = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--die-with-parent", "--clearenv"]
        rights = ["--regid=0", "--clear-groups", "--bounding-set=-all", "--no-new-privs"]
        return [
            "bwrap",
            *binds,
            *isolation,
            *variables,
            "--",
            "/usr/bin/setpriv",
            f"--reuid={self._user}",
            *rights,
            "--",
            *arguments,
        ]

    def run(self, *arguments: str, status: int = 0) -> str:
        """What it prints. Raises AssertionError unless it ends with the status."""
        started_s = time.monotonic()  # noqa: TID251 - a real process has no other clock
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        took_s = time.monotonic() - started_s  # noqa: TID251
        assert done.returncode == status, f"{arguments} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
        print(f"ok {took_s:6.2f} s  {' '.join(arguments).splitlines()[0][:110]}", flush=True)
        return done.stdout


def main() -> None:
    """Build, run, report."""
    require_tools()
    build()
    with mounted() as root, tempfile.TemporaryDirectory(prefix="tiered-sidecar-image-") as name:
        Path(name).chmod(0o755)
        check(Box(root, Path(name) / "named"))
        check_any_user(Box(root, Path(name) / "nameless", NAMELESS_USER_ID))
        check_licences(root)
        report(root)


def check(box: Box) -> None:
    """What a pod would do."""
    assert box.run("id", "-u").strip() == str(USER_ID)
    box.run("sh", "-c", "touch /opt/tiered-sidecar/x || touch /etc/x || touch /x", status=1)
    start_s = min(_start_s(box) for _ in range(3))
    print(f"ok {start_s:6.2f} s  run: from the start until /healthz answers, no JVM", flush=True)
    assert start_s <= START_LIMIT_S, f"the start took {start_s:.2f} s, more than {START_LIMIT_S} s"
    backfill = (
        "backfill",
        "--log-dir",
        "/srv",
        "--archive",
        "/mnt/demo",
        "--assume-leader",
        "--state-dir",
        "/tmp/state",
    )
    report_of_backfill = json.loads(box.run(*PROGRAM, "--json", *backfill))
    assert report_of_backfill["kind"] == "backfill", report_of_backfill
    box.run(*PROGRAM, "status", "--archive", "/mnt/demo")
    box.run(*PROGRAM, "verify", "--archive", "/mnt/demo", "--deep")
    (partition, *_) = sorted(path.name for path in (golden("2.7.2") / "logs").glob("compacted-*"))
    for engine in ("spark", "local"):
        box.run(
            *PROGRAM,
            "compact",
            f"/srv/{partition}",
            "--out",
            f"/tmp/{engine}/{partition}",
            "--engine",
            engine,
            "--now-ms",
            NOW_MS,
        )
    box.run("diff", "-r", f"/tmp/spark/{partition}", f"/tmp/local/{partition}")
    box.run("/opt/tiered-sidecar/bin/python", "/opt/tiered-sidecar/smoke.py")
    check_preparation(box)


def check_any_user(box: Box) -> None:
    """A user ID without a name runs everything, Spark too."""
    box.run("id", "-un", status=1)
    (partition, *_) = sorted(path.name for path in (golden("2.7.2") / "logs").glob("compacted-*"))
    out = ("--out", f"/tmp/out/{partition}", "--engine", "spark", "--now-ms", NOW_MS)
    box.run(*PROGRAM, "compact", f"/srv/{partition}", *out)


def check_licences(root: Path) -> None:
    """Each place that NOTICE names has the licences of what the image has. Raises AssertionError."""
    packages = root / "opt/tiered-sidecar/lib/python3.11/site-packages"
    listing = ["dpkg-query", f"--admindir={root / 'var/lib/dpkg'}", "-W", "-f=${Package}\n"]
    debian = subprocess.run(listing, capture_output=True, text=True, check=True).stdout.split()
    places = [root / "usr/share/doc" / name / "copyright" for name in debian]
    places += [root / "opt/java/copyright", packages / "pyspark/licenses"]
    places += [root / "usr/share/licenses/tiered-sidecar" / name for name in ("LICENSE", "NOTICE")]
    missing = [str(place) for place in places if not place.exists()]
    assert not missing, missing
    print(f"ok           {len(places)} places of licences", flush=True)


def check_preparation(box: Box) -> None:
    """What the build made ready was used by all of the above, and can be made again where it can be written."""
    (line,) = (json.loads(line) for line in box.run(*PROGRAM, "--json", "prepare").splitlines())
    assert line["made"] is False, line
    verify = "tiered-sidecar verify --archive /mnt/demo --deep --engine local"
    box.run("sh", "-c", f"{verify} && ! PYTHONVERBOSE=1 {verify} 2>&1 | grep -q \"^import 'numba'\"")
    kernels = "cd {} && find . -type f -name '*.nbc' | sort"
    shipped, present = (
        set(box.run("sh", "-c", kernels.format(place)).split())
        for place in ("/opt/tiered-sidecar/kernels", "/tmp/kernels")
    )
    assert shipped == present, f"compiled again in the image: {sorted(present - shipped)}"
    box.run("sh", "-c", "XDG_CACHE_HOME=/tmp/cache tiered-sidecar prepare && test -s /tmp/cache/tiered-sidecar/*.jsa")


_UNTIL_HEALTHY = """
import subprocess, sys, time, urllib.request, os
from pathlib import Path

started = time.monotonic()
process = subprocess.Popen(["tiered-sidecar", "run", "--log-dir", "/srv", "--archive", "/mnt/started", "--assume-leader",
                            "--state-dir", "/tmp/started", "--http-bind", "127.0.0.1:9308"], stderr=subprocess.DEVNULL)
while True:
    try:
        urllib.request.urlopen("http://127.0.0.1:9308/healthz", timeout=5).close()
        break
    except OSError:
        if process.poll() is not None or time.monotonic() - started > 60:
            sys.exit("it did not start")
        time.sleep(0.01)
print(time.monotonic() - started)
# The page needs its files and its templates' engine, which nothing else in the image does.
for path, words in (("", b"<!doctype html>"), ("page.css", b"{"), ("page.js", b"fetch(")):
    with urllib.request.urlopen(f"http://127.0.0.1:9308/{path}", timeout=30) as answer:
        body = answer.read()
    if words not in body.lower() or b"{%" in body:
        sys.exit(f"/{path} is not what it should be: {body[:500]}")
names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in os.listdir("/proc") if pid.isdigit()]
process.terminate()
code = process.wait(60)
if "java" in names or code not in (0, 143):
    sys.exit(f"processes {names}, exit code {code}")
"""


def _start_s(box: Box) -> float:
    return float(box.run("/opt/tiered-sidecar/bin/python", "-c", _UNTIL_HEALTHY))


def report(root: Path) -> None:
    """Sizes."""
    parts: Sequence[str] = ("", "opt/java", "opt/tiered-sidecar", "usr", "var")
    for part in parts:
        size = subprocess.run(["du", "-xsm", str(root / part)], capture_output=True, text=True, check=True).stdout
        print(f"{size.split()[0]:>6} MiB  /{part}")
    if "--compressed" in sys.argv:
        print(f"{compressed_bytes() >> 20:>6} MiB  compressed, as a registry keeps it")


if __name__ == "__main__":
    main()
