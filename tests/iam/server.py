"""An S3 server with a user for each policy of docs/reference/iam.md: it refuses all else, and logs who asked for what."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers.dist import go_binary
from tests.servers.versitygw import VersityGateway

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "iam.md"
ACTIONS = {
    "AbortMultipartUpload": "s3:AbortMultipartUpload",
    "CompleteMultipartUpload": "s3:PutObject",
    "CreateMultipartUpload": "s3:PutObject",
    "DeleteObject": "s3:DeleteObject",
    "DeleteObjects": "s3:DeleteObject",
    "GetBucketEncryption": "s3:GetEncryptionConfiguration",
    "GetBucketLifecycleConfiguration": "s3:GetLifecycleConfiguration",
    "GetBucketVersioning": "s3:GetBucketVersioning",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "ListMultipartUploads": "s3:ListBucketMultipartUploads",
    "ListObjectsV2": "s3:ListBucket",
    "PutObject": "s3:PutObject",
    "UploadPart": "s3:PutObject",
}
"""What a policy must allow for an operation. Source: AWS's Service Authorization Reference for S3."""
_LINE = re.compile(r"^\S+ \S+ \[[^]]*\] \S+ (\S+) \S+ s3_(\w+) \S+ \S+ (\d+) ", re.MULTILINE)
_TIMEOUT_S = 300.0


def policies() -> dict[str, dict[str, Any]]:
    """By heading of the page."""
    found = re.findall(
        r"^## ([^\n]+)\n\n```json\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
    )
    return {heading: json.loads(text) for heading, text in found}


def actions(policy: Mapping[str, Any]) -> set[str]:
    """All that it allows."""
    return {action for statement in policy["Statement"] for action in statement["Action"]}


class GuardedGateway:
    """A server whose bucket and prefix are those of the page. Users have the names of headings."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "access.log"
        users = directory / "users"
        users.mkdir()
        options = ["--iam-dir", str(users), "--access-log", str(self._log)]
        self.gateway = VersityGateway(directory, bucket="bucket", options=options)

    def allow(self, granted: Mapping[str, list[str]]) -> None:
        """Make users; each gets the policies with these headings, as statements of the bucket's policy."""
        statements = []
        for user, headings in granted.items():
            self._make(user)
            for heading in headings:
                statements += [{**one, "Principal": {"AWS": [user]}} for one in policies()[heading]["Statement"]]
        for number, statement in enumerate(statements):
            statement["Sid"] = f"Statement{number}"
        client = self.gateway.client()
        client.put_bucket_policy(Bucket="bucket", Policy=json.dumps({"Version": "2012-10-17", "Statement": statements}))
        client.close()

    def settings(self, user: str, **more: Any) -> Path:
        """A settings file with the keys of a user."""
        keys = {"access_key_id": user, "secret_access_key": f"secret-of-{user}"}
        s3 = {"endpoint_url": self.gateway.endpoint, "region": "us-east-1", "addressing_style": "path", **keys}
        path = self._directory / f"{user}.yaml"
        path.write_text(json.dumps({"store": {"url": "s3://bucket/prefix", "s3": s3}, **more}))
        return path

    def asked(self, user: str) -> dict[str, set[int]]:
        """HTTP statuses by action, of all that this user has asked for until now."""
        found: dict[str, set[int]] = {}
        for requester, operation, status in _LINE.findall(self._log.read_text(encoding="utf-8")):
            if requester == user:
                found.setdefault(ACTIONS[operation], set()).add(int(status))
        return found

    def _make(self, user: str) -> None:
        root = ["--access", self.gateway.access_key, "--secret", self.gateway.secret_key]
        new = ["--access", user, "--secret", f"secret-of-{user}", "--role", "user"]
        command = [
            str(go_binary("versitygw")),
            "admin",
            "--endpoint-url",
            self.gateway.endpoint,
            *root,
            "create-user",
            *new,
        ]
        subprocess.run(command, check=True, capture_output=True, timeout=_TIMEOUT_S)
