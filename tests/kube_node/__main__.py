"""`make kube-node-test`: builds the images, and runs the tests in namespaces of their own: `python -m tests.kube_node [PYTEST…]`.

Network, mounts, host name and processes of the node are its own. The machine keeps only the images, in the tests' cache, and at
the end no process is left. `python -m tests.kube_node up` keeps a node, and runs pytest with each line of its input.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.image.build import require_tools
from tests.kube_node.build import build_images
from tests.kube_node.node import DIRECTORY, hold
from tests.servers.dist import go_module_programs
from tests.servers.kubernetes import kubernetes_program, node_program
from tests.servers.kubernetes_node import NODE_ADDRESS

PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ipset": "ipset",
    "mkfs.ext4": "e2fsprogs",
    "unshare": "util-linux",
    "ip": "iproute2",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
}
# Of which the pods' groups are left when the last process of a namespace is killed.
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
# The file systems of pods and networks are mounted there, and the lock of iptables is there.
_OWN_DIRECTORIES = ("/run", "/var/log", "/var/lib/cni")


def main() -> int:
    """The exit code of pytest."""
    if DIRECTORY in os.environ:
        return _inside()
    require_tools()
    missing = [package for program, package in PACKAGES.items() if shutil.which(program) is None]
    if missing:
        sys.exit(f"install the Debian packages {' '.join(missing)}: they run the pods")
    for program in ("etcd", "kubectl"):
        kubernetes_program(program)
    node_program("kubelet")
    go_module_programs("kube-router")
    build_images()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    own = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*own, "--propagation", "private", sys.executable, "-m", "tests.kube_node", *sys.argv[1:]]
    # A short name: the path of a socket has at most 107 characters. Removed when no pod's file system is mounted there any more.
    with tempfile.TemporaryDirectory(prefix="node-") as directory:
        try:
            with subprocess.Popen(command, env={**os.environ, DIRECTORY: directory}) as process:
                print(f"enter: nsenter --target $(pgrep --parent {process.pid}) --all", flush=True)
                try:
                    return process.wait()
                finally:
                    # It ignores SIGTERM. With it all processes of the namespace end.
                    process.kill()
        finally:
            _remove_control_groups()


def _inside() -> int:
    """As the first process of the namespaces."""
    for place in _OWN_DIRECTORIES:
        if Path(place).is_dir():
            _run("mount", "-t", "tmpfs", "tmpfs", place)
    _run("mount", "--make-rshared", "/")
    _run("hostname", "node1")
    _run("ip", "link", "set", "lo", "up")
    # The node's address must not be a loopback one, and connections to services need a route before rules send them elsewhere.
    _run("ip", "link", "add", "node", "type", "bridge")
    _run("ip", "address", "add", f"{NODE_ADDRESS}/24", "dev", "node")
    _run("ip", "link", "set", "node", "up")
    _run("ip", "route", "add", "default", "via", NODE_ADDRESS.rpartition(".")[0] + ".254", "dev", "node")
    _run("sysctl", "-qw", "net.ipv4.ip_forward=1")
    arguments = sys.argv[1:]
    if arguments == ["up"]:
        return hold()
    pytest = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-v", "--durations=0", "tests/kube_node"]
    return subprocess.run([*pytest, *arguments], check=False).returncode


def _run(*command: str) -> None:
    subprocess.run(command, check=True)


def _remove_control_groups() -> None:
    for root in (_CONTROL_GROUPS, *_CONTROL_GROUPS.iterdir()):
        if (root / "kubepods").is_dir():
            subprocess.run(["find", str(root / "kubepods"), "-depth", "-type", "d", "-delete"], check=False)


if __name__ == "__main__":
    sys.exit(main())
