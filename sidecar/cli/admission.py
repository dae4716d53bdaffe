"""`k8s webhook` and `k8s missing`: add the sidecar to pods when they are created, and find those without it."""

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from sidecar.admission.patch import has_sidecar
from sidecar.cli.options import GlobalOptions
from sidecar.cli.output import print_answer, print_line, remark
from sidecar.clock import SystemClock
from sidecar.errors import SettingsError

DRAIN_S: Final = 5.0
"""How long API servers may still have the address of a pod that ends."""
_ENDED = {"Succeeded", "Failed"}
_NO_PODS = "stdin: expected pods as kubectl get pods -o json prints them"


def missing(options: GlobalOptions) -> int:
    """List pods that lack the sidecar. Injection changes no existing pod, and admits a pod without the sidecar if it
    fails. Reads the pods from stdin: kubectl get pods -A -l strimzi.io/broker-role=true -o json | tiered-sidecar k8s
    missing. Exit code 1 if a pod lacks the sidecar, 2 if the input has no pods. Ended pods do not count.
    """
    pods = [pod for pod in _pods() if (pod.get("status") or {}).get("phase") not in _ENDED]
    if not pods:
        raise SettingsError(
            "the input has no pods: check the label and the namespace given to kubectl get pods -o json"
        )
    names = [pod["metadata"] for pod in pods if not has_sidecar(pod)]
    found = [{"namespace": name.get("namespace", ""), "name": name["name"]} for name in names]
    if options.json:
        print_answer("kubernetes_missing", {"pods": len(pods), "missing": found})
    else:
        for one in found:
            print_line(f"{one['namespace']}/{one['name']}")
        remark(f"{len(found)} of {len(pods)} pods lack the sidecar" + ("; roll them" if found else ""))
    return 1 if found else 0


def webhook(
    options: GlobalOptions,
    injection: Annotated[Path, typer.Option(metavar="FILE", help="What pods get: injection.json of the Helm chart.")],
    certificate: Annotated[Path, typer.Option(metavar="FILE", help="PEM certificate of the server.")],
    key: Annotated[Path, typer.Option(metavar="FILE", help="Its PEM private key.")],
    bind: Annotated[str, typer.Option(metavar="HOST:PORT", help="Address and port.")] = "0.0.0.0:9443",
) -> int:
    """Serve the admission webhook that adds the sidecar to Strimzi's broker pods, until SIGTERM. The Helm chart runs it
    with inject.engine=webhook. The files are read again when they change.
    """
    from sidecar.admission.server import WebhookFiles, WebhookServer

    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal():
        raise SettingsError(f"--bind {bind}: expected HOST:PORT")
    options.set_up_logs(options.load_early({}))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    with WebhookServer((host.strip("[]"), int(port)), WebhookFiles(injection, certificate, key)):
        stop.wait()
        SystemClock().sleep_s(DRAIN_S)
    return 0


def _pods() -> list[dict[str, Any]]:
    try:
        found = json.load(sys.stdin)
        pods = list(found.get("items", [found]))
        kinds = {pod["kind"] for pod in pods}
        if kinds <= {"Pod"} and all(pod["metadata"]["name"] for pod in pods):
            return pods
    except ValueError as error:
        raise SettingsError(f"{_NO_PODS}, but this is no JSON: {error}") from error
    except (TypeError, KeyError, AttributeError) as error:
        raise SettingsError(f"{_NO_PODS}, but something in it has no kind or no name") from error
    raise SettingsError(f"stdin: expected pods, found {', '.join(sorted(kinds))}")
