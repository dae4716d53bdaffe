"""`client.properties` of Kafka's own tools, read as settings of the connection to the broker.

Sources: CommonClientConfigs, SslConfigs, SaslConfigs and JaasContext of Kafka's clients.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from sidecar.errors import CorruptFile, SettingsError
from sidecar.logformat.metadata_files import read_properties

CONNECTION: Final = "broker.connection"
FILE_BYTES_MAX: Final = 1024 * 1024

_TO_A_FILE = "write it to a PEM file and name that as {}, with {}=PEM"
_UNSUPPORTED: Final = {
    "ssl.truststore.certificates": _TO_A_FILE.format("ssl.truststore.location", "ssl.truststore.type"),
    "ssl.keystore.certificate.chain": _TO_A_FILE.format("ssl.keystore.location", "ssl.keystore.type"),
    "ssl.keystore.key": _TO_A_FILE.format("ssl.keystore.location", "ssl.keystore.type"),
    "sasl.client.callback.handler.class": "Java classes cannot be loaded",
    "sasl.login.class": "Java classes cannot be loaded",
    "security.providers": "Java classes cannot be loaded",
    "config.providers": "write the values themselves, or use the settings file with *_file settings",
}
"""Keys without an equivalent here, and what to do instead."""
_TUNING: Final = re.compile(
    r"sasl\.(kerberos\.(kinit|ticket|min)|login\.(refresh|retry|connect|read)|oauthbearer\.(clock|jwks|expected))\..*"
    r"|ssl\.(protocol|keymanager\.algorithm|trustmanager\.algorithm|secure\.random\.implementation)"
)
"""Keys of TLS and SASL that do not change who is believed."""
_STORE_TYPES: Final = {"PEM", "PKCS12", "JKS"}
"""JKS is Kafka's default, and Java reads PKCS12 files under that name: the content decides (`sidecar.broker.credentials`)."""
_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": "OAUTHBEARER",
    "com.sun.security.auth.module.Krb5LoginModule": "GSSAPI",
}
_OAUTH_HANDLER: Final = re.compile(
    r"org\.apache\.kafka\.common\.security\.oauthbearer\.(secured\.)?OAuthBearerLoginCallbackHandler"
)
_JAAS: Final = re.compile(
    r"\s*(?P<module>[\w.$]+)\s+(?i:required|requisite|sufficient|optional)\b(?P<options>.*);\s*", re.DOTALL
)
_OPTION: Final = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\["'\\])*)"|'((?:[^'\\]|\\["'\\])*)'|([^\s;"']+))\s*"""
)


def read_client_properties(file: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """What a file says of the connection: settings by path, and keys that have no effect here.

    Raises SettingsError, one line for each key that cannot be followed. Its texts hold no value of a secret.
    """
    try:
        with file.open("rb") as opened:
            data = opened.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError(f"--command-config: {file} cannot be read: {error.strerror or error}") from error
    if len(data) > FILE_BYTES_MAX:
        raise SettingsError(
            f"--command-config: {file} has more than {FILE_BYTES_MAX} bytes: it is not a client.properties"
        )
    try:
        properties = {key: value.strip() for key, value in read_properties(data, str(file)).items()}
    except CorruptFile as error:
        raise SettingsError(f"--command-config: {error}") from error
    reader = _Reader(dict(properties))
    values = reader.connection()
    if properties and len(reader.unused) == len(properties):
        # Another kind of file would mean a connection without TLS and SASL.
        raise SettingsError(
            f"--command-config: {file} has no key of a client's connection: it is not a client.properties"
        )
    if reader.problems:
        raise SettingsError("\n".join(f"--command-config {file}: {problem}" for problem in reader.problems))
    return {f"{CONNECTION}.{name}": value for name, value in values.items()}, reader.unused


@dataclass(slots=True)
class _Reader:
    """Takes each key once; what is left at the end is unsupported or unused."""

    left: dict[str, str]
    problems: list[str] = field(default_factory=list)
    unused: tuple[str, ...] = ()

    def connection(self) -> dict[str, Any]:
        protocol = self._named("security.protocol", "PLAINTEXT")
        values: dict[str, Any] = {"security_protocol": protocol}
        if servers := self._take("bootstrap.servers"):
            values["bootstrap_servers"] = [server.strip() for server in servers.split(",") if server.strip()]
        if timeout_ms := self._take("request.timeout.ms"):
            values["request_timeout_s"] = self._seconds("request.timeout.ms", timeout_ms)
        # Kafka's clients ignore the keys of a protocol that is not used.
        values |= self._tls() if protocol.endswith("SSL") else self._ignored("ssl.")
        values |= self._sasl() if protocol.startswith("SASL") else self._ignored("sasl.")
        self._rest()
        return {name: value for name, value in values.items() if value is not None}

    def _ignored(self, prefix: str) -> dict[str, Any]:
        ignored = [key for key in self.left if key.startswith(prefix)]
        self.unused += tuple(ignored)
        for key in ignored:
            del self.left[key]
        return {}

    def _take(self, key: str) -> str | None:
        return self.left.pop(key, None)

    def _named(self, key: str, default: str) -> str:
        found = self._take(key)
        if found == "":
            # As where a template's variable was not set. Kafka's clients refuse it, too: the default is another connection.
            self.problems.append(f"{key} has no value: leave it out for {default}")
        return (found or default).upper()

    def _seconds(self, key: str, text: str) -> float | None:
        if re.fullmatch(r"[0-9]{1,9}", text):
            return int(text) / 1000
        self.problems.append(f"{key}: expected milliseconds, found {text!r}")
        return None

    def _tls(self) -> dict[str, Any]:
        types = {name: self._store_type(f"ssl.{name}.type") for name in ("truststore", "keystore")}
        key_password, store_password = self._take("ssl.key.password"), self._take("ssl.keystore.password")
        store = self._take("ssl.keystore.location")
        if (protocols := self._take("ssl.enabled.protocols")) is not None:
            self._require_versions(protocols)
        return {
            "ssl_ca_file": self._take("ssl.truststore.location"),
            "ssl_ca_password": self._take("ssl.truststore.password") if types["truststore"] != "PEM" else None,
            "ssl_certificate_file": store,
            "ssl_key_file": store,
            "ssl_key_password": key_password if types["keystore"] == "PEM" else store_password or key_password,
            "ssl_check_hostname": self._checks_hostname(),
        }

    def _store_type(self, key: str) -> str:
        kind = (self._take(key) or "JKS").upper()
        if kind not in _STORE_TYPES:
            self.problems.append(f"{key}={kind}: expected PEM or PKCS12")
        return kind

    def _require_versions(self, protocols: str) -> None:
        if {version.strip() for version in protocols.split(",")} != {"TLSv1.2", "TLSv1.3"}:
            self.problems.append(f"ssl.enabled.protocols={protocols}: only TLSv1.2,TLSv1.3 is supported; leave it out")

    def _checks_hostname(self) -> bool:
        algorithm = self._take("ssl.endpoint.identification.algorithm")
        if algorithm not in (None, "", "https", "HTTPS"):
            self.problems.append(
                f"ssl.endpoint.identification.algorithm={algorithm}: expected https, or nothing for no check"
            )
        return algorithm != ""

    def _sasl(self) -> dict[str, Any]:
        mechanism = self._named("sasl.mechanism", "GSSAPI")
        values: dict[str, Any] = {"sasl_mechanism": mechanism}
        values["sasl_kerberos_service_name"] = self._take("sasl.kerberos.service.name")
        endpoint = self._take("sasl.oauthbearer.token.endpoint.url")
        handler = self._take("sasl.login.callback.handler.class")
        module, options = self._login(self._take("sasl.jaas.config"))
        if module is not None and module != mechanism.partition("-")[0]:
            self.problems.append(f"sasl.jaas.config: its login module does not fit sasl.mechanism={mechanism}")
        match mechanism.partition("-")[0]:
            case "PLAIN" | "SCRAM":
                values |= {
                    "sasl_username": options.pop("username", None),
                    "sasl_password": options.pop("password", None),
                }
                if not values["sasl_username"] or values["sasl_password"] is None:
                    self.problems.append(
                        "sasl.jaas.config: username and password are needed for sasl.mechanism=" + mechanism
                    )
            case "OAUTHBEARER":
                values["sasl_oauth_token_file"] = self._token_file(endpoint, handler)
            case "GSSAPI" if (
                options.pop("useTicketCache", "true") != "true" or options.pop("useKeyTab", "false") != "false"
            ):
                self.problems.append(
                    "sasl.jaas.config: keytabs are not read: get a ticket (kinit -kt KEYTAB PRINCIPAL), and set useTicketCache=true"
                )
                options.clear()
        if options:
            # Not by name: the part of an unquoted password after a blank has the form of an option.
            self.problems.append("sasl.jaas.config: it has an option that is not supported; put quotes around values")
        return values

    def _login(self, jaas: str | None) -> tuple[str | None, dict[str, str]]:
        """The kind of mechanism that a JAAS configuration is for, and its options."""
        if jaas is None:
            return None, {}
        found = _JAAS.fullmatch(jaas)
        options, position = dict[str, str](), 0
        text = found["options"] if found else ""
        while option := _OPTION.match(text, position):
            quoted = option[2] if option[2] is not None else option[3]
            options[option[1]] = option[4] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
            position = option.end()
        if found is None or text[position:].strip():
            self.problems.append('sasl.jaas.config: expected one login module: MODULE required name="value" ... ;')
            return None, {}
        if found["module"] not in _MODULES:
            self.problems.append(f"sasl.jaas.config: login module {found['module']} is not supported")
            return None, {}
        return _MODULES[found["module"]], options

    def _token_file(self, endpoint: str | None, handler: str | None) -> str | None:
        if handler is not None and not _OAUTH_HANDLER.fullmatch(handler):
            self.problems.append(f"sasl.login.callback.handler.class={handler}: Java classes cannot be loaded")
        if endpoint is not None and urlsplit(endpoint).scheme == "file":
            return unquote(urlsplit(endpoint).path)
        self.problems.append(
            "sasl.oauthbearer.token.endpoint.url: expected file:/PATH of a token; tokens are not fetched from servers"
        )
        return None

    def _rest(self) -> None:
        for key in self.left:
            if key in _UNSUPPORTED:
                self.problems.append(f"{key} is not supported: {_UNSUPPORTED[key]}")
            elif key.startswith(("ssl.", "sasl.", "security.", "config.providers.")) and not _TUNING.fullmatch(key):
                self.problems.append(f"{key} is not supported")
            else:
                self.unused += (key,)
