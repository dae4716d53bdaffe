"""A Kubernetes cluster of one node that runs pods: containerd, kubelet, controllers, scheduler, services and network policies.

It needs root, and must be started in network, mount and process namespaces of its own (`tests.kube_node.namespaces`): it changes
routes, firewall rules and mounts.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import yaml

from tests.servers.cluster_dns import ClusterDns
from tests.servers.dist import go_module_programs
from tests.servers.kubernetes import KubectlFailed, KubernetesApi, node_program
from tests.servers.process import Server, ServerProcess

NODE_ADDRESS = "10.77.0.1"
"""Of the node itself: services' addresses are 10.96.0.0/24, those of pods are below."""
POD_NETWORK = "10.77.1.0/24"
PAUSE_IMAGE = "localhost/pause:1"
DISK_BYTES = 128 << 30
"""Of the disk of pods. They are evicted before `PRESSURE_BYTES` are used."""
PRESSURE_BYTES = DISK_BYTES // 100
_START_TIMEOUT_S = 180.0
_CONTAINERD_TIMEOUT_S = 60.0


class KubernetesNode(Server):
    """The API server and one node, `node1`; a context manager.

    Args:
        directory: logs and state of this run.
        images: containerd's own directory, which may be kept for the next run.
    """

    def __init__(self, directory: Path, images: Path) -> None:
        self._directory = directory
        self.api = KubernetesApi(directory / "api", ("--kubelet-preferred-address-types=InternalIP",))
        self._socket = directory / "containerd.sock"
        self._disk = directory / "kubelet"
        kubeconfig = self.api.client_environment["KUBECONFIG"]
        client = f"--kubeconfig={kubeconfig}"
        programs = {
            "kube-controller-manager": [
                client,
                f"--service-account-private-key-file={self.api.accounts_key}",
                f"--root-ca-file={self.api.ca_file}",
                "--use-service-account-credentials=true",
                "--leader-elect=false",
            ],
            "kube-scheduler": [client, "--leader-elect=false"],
            "kube-proxy": [
                client,
                "--hostname-override=node1",
                "--proxy-mode=iptables",
                f"--cluster-cidr={POD_NETWORK}",
                # Limits of the machine's connection tracking, which are not ours to set.
                "--conntrack-max-per-core=0",
                "--conntrack-tcp-timeout-established=0s",
                "--conntrack-tcp-timeout-close-wait=0s",
            ],
            "kubelet": [
                client,
                f"--config={self._kubelet_settings()}",
                "--hostname-override=node1",
                f"--node-ip={NODE_ADDRESS}",
                f"--root-dir={self._disk}",
                f"--cert-dir={directory / 'kubelet-pki'}",
            ],
        }
        # Of its three parts only the one that enforces NetworkPolicies.
        router = [
            str(go_module_programs("kube-router") / "kube-router"),
            client,
            "--hostname-override=node1",
            "--run-firewall=true",
            "--run-router=false",
            "--run-service-proxy=false",
            "--enable-cni=false",
            "--service-cluster-ip-range=10.96.0.0/24",
            "--health-port=0",
        ]
        self._policies = self._process("kube-router", router)
        self._containerd = self._process("containerd", ["containerd", f"--config={self._containerd_settings(images)}"])
        self._programs = {
            name: self._process(name, [str(node_program(name)), *flags]) for name, flags in programs.items()
        }
        self._dns = ClusterDns(self.api, NODE_ADDRESS)

    def start(self) -> None:
        """See Server."""
        (self._directory / "resolv.conf").write_text(f"nameserver {NODE_ADDRESS}\n")
        self._mount_disk()
        self.api.start()
        self._dns.start()
        self._containerd.launch()
        self._containerd.wait_until(self._containerd_answers, _CONTAINERD_TIMEOUT_S)
        for process in self._programs.values():
            process.launch()
        self._programs["kubelet"].wait_until(self._is_ready, _START_TIMEOUT_S)
        # It ends where there is no node.
        self._policies.launch()

    def close(self) -> None:
        """See Server. What runs in pods goes on until the process namespace ends."""
        for process in [self._policies, *self._programs.values(), self._containerd]:
            process.kill()
        self._dns.close()
        self.api.close()

    def load_image(self, archive: Path) -> None:
        """Brings an image from a `docker save` archive into the node."""
        self._containerd_client("images", "import", "--no-unpack", str(archive))

    def _mount_disk(self) -> None:
        """A file with holes: the machine's disk has only what pods write. It goes with the mount namespace."""
        image = self._directory / "disk.img"
        image.touch()
        os.truncate(image, DISK_BYTES)
        # Few inodes: the tables of inodes are written.
        options = ["-N", "65536", "-m", "0", "-O", "^has_journal", "-E", "lazy_itable_init=0,nodiscard"]
        subprocess.run(["mkfs.ext4", "-q", *options, str(image)], check=True)
        self._disk.mkdir()
        subprocess.run(["mount", "-o", "loop", str(image), str(self._disk)], check=True)

    def _process(self, name: str, command: list[str]) -> ServerProcess:
        return ServerProcess(name, command, self._directory / f"{name}.log")

    def _containerd_client(self, *arguments: str) -> str:
        command = ["ctr", f"--address={self._socket}", "--namespace=k8s.io", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout

    def _containerd_answers(self) -> bool:
        try:
            self._containerd_client("version")
        except subprocess.CalledProcessError:
            return False
        return True

    def _is_ready(self) -> bool:
        try:
            self.api.kubectl("wait", "--for=condition=Ready", "node/node1", "--timeout=1s")
            # Pods need it, and a controller makes it.
            self.api.kubectl("get", "serviceaccount", "default")
        except KubectlFailed:
            return False
        return True

    def _containerd_settings(self, images: Path) -> Path:
        networks = self._directory / "cni"
        networks.mkdir(parents=True)
        bridge = {
            "type": "bridge",
            "bridge": "cni0",
            "isGateway": True,
            "hairpinMode": True,
            "ipam": {
                "type": "host-local",
                "dataDir": str(self._directory / "addresses"),
                "ranges": [[{"subnet": POD_NETWORK}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]}
        (networks / "10-pods.conflist").write_text(json.dumps(network))
        path = self._directory / "containerd.toml"
        path.write_text(
            f"""
version = 2
root = "{images}"
state = "{self._directory / "containerd"}"
[grpc]
  address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_hugetlb_controller = true
  # Without CAP_SYS_RESOURCE no process may be made less likely to be killed.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{networks}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self._directory / "opt"}"
"""
        )
        return path

    def _kubelet_settings(self) -> Path:
        path = self._directory / "kubelet.yaml"
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            # Only we reach the node.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "clusterDNS": [NODE_ADDRESS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self._directory / "resolv.conf"),
            # Images are on the disk of the machine, which is often nearly full.
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            # A hard limit would take away from what pods may request.
            "evictionSoft": {"nodefs.available": str(DISK_BYTES - PRESSURE_BYTES)},
            "evictionSoftGracePeriod": {"nodefs.available": "1s"},
            "evictionMaxPodGracePeriod": 10,
            "evictionPressureTransitionPeriod": "5s",
            "volumeStatsAggPeriod": "5s",
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            # Changed ConfigMaps and Secrets come sooner than after a minute.
            "syncFrequency": "10s",
            "volumePluginDir": str(self._directory / "volume-plugins"),
            "podLogsDir": str(self._directory / "pod-logs"),
            "makeIPTablesUtilChains": False,
        }
        path.write_text(yaml.safe_dump(settings))
        return path
