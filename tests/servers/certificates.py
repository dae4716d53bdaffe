"""Certificates for brokers and clients, signed by an authority that the test makes: PEM files, made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.servers.process import ServerError

KEYSTORE_PASSWORD = "of-the-keystore"
_DAYS = "2"
_TIMEOUT_S = 300.0


@dataclass(frozen=True)
class Certificate:
    """`chain` and `key` as our side takes them; `keystore` has both, in PKCS12 form with `KEYSTORE_PASSWORD`."""

    chain: Path
    key: Path
    keystore: Path


class Authority:
    """A certificate authority below `directory`. Its own certificate is `ca_file`."""

    def __init__(self, directory: Path, name: str = "test authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.ca_file = directory / "ca.pem"
        self._key = directory / "ca.key"
        subject = ["-subj", f"/CN={name}", "-days", _DAYS]
        _openssl("req", "-x509", *_new_key(self._key), *subject, "-out", str(self.ca_file))

    def issue(self, name: str, alternative_names: str = "") -> Certificate:
        """A new key and its certificate. Args: alternative_names: such as `IP:127.0.0.1,DNS:localhost`."""
        key, chain, request = (self._directory / f"{name}.{suffix}" for suffix in ("key", "pem", "csr"))
        extensions = self._directory / f"{name}.ext"
        extensions.write_text(
            f"subjectAltName={alternative_names}\n" if alternative_names else "basicConstraints=CA:FALSE\n"
        )
        _openssl("req", *_new_key(key), "-subj", f"/CN={name}", "-out", str(request))
        signing = ["-CA", str(self.ca_file), "-CAkey", str(self._key), "-CAcreateserial", "-extfile", str(extensions)]
        _openssl("x509", "-req", "-in", str(request), *signing, "-days", _DAYS, "-out", str(chain))
        keystore = self._directory / f"{name}.p12"
        both = ["-inkey", str(key), "-in", str(chain), "-passout", f"pass:{KEYSTORE_PASSWORD}"]
        _openssl("pkcs12", "-export", *both, "-out", str(keystore))
        return Certificate(chain, key, keystore)


def encrypted_key(key: Path, password: str) -> Path:
    """A copy of a key that cannot be read without the password."""
    target = key.with_suffix(".encrypted.key")
    _openssl("pkcs8", "-topk8", "-in", str(key), "-passout", f"pass:{password}", "-out", str(target))
    return target


def _new_key(key: Path) -> list[str]:
    return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]


def _openssl(*arguments: str) -> None:
    if shutil.which("openssl") is None:
        raise ServerError("'openssl' is not on PATH; on Debian or Ubuntu install the package openssl")
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    if done.returncode != 0:
        raise ServerError(f"openssl {arguments[0]} ended with status {done.returncode}: {done.stderr}")
