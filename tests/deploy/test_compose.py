"""compose.yaml without an engine: that it is Compose, and that all that it names is there and fits together."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.resources import files
from pathlib import Path
from threading import Thread
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.compose.polaris_setup import set_up
from headrace.settings import SECRETS, SETTING_SPECS, load_settings
from tests.deploy.known_settings import BY_SERVICE, TRINO

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
VARIABLE = re.compile(r"\$\{(\w+)(?:(:[-?])([^}]*))?\}")
ADDRESS = re.compile(r"(?<![\w.-])([a-z][a-z0-9-]*):(\d{2,5})\b")
OWN = {"headrace", "generate", "control-room", "dagster-webserver", "dagster-daemon"}
UNPINNED = {"tchiotludo/akhq:0.25.1", "quay.io/debezium/connect:3.6.2.Final"}
"""Images whose digest nobody has looked up yet. None may be added: scripts/pin_images.py pins it."""
BESIDE_SETTINGS = {"PGPASSWORD", "HEADRACE_TOKEN"}


def examples() -> dict[str, str]:
    lines = (ROOT / ".env.example").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def filled(value: object, environ: Mapping[str, str]) -> str:
    """Return a text of compose.yaml as Compose fills it in."""
    return VARIABLE.sub(lambda match: environ.get(match[1]) or (match[3] if match[2] == ":-" else ""), str(value))


def texts(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from texts(item)
    elif isinstance(value, str):
        yield value


def listens(name: str) -> set[int]:
    """Return the ports on which a service listens in its container: its settings say so, or else its image does."""
    service = SERVICES[name]
    words = [filled(word, {}) for word in service.get("command", [])]
    said = {int(words[at + 1]) for at, word in enumerate(words) if word in ("--port", "--webui-port")}
    said |= {int(word[1:]) for word in words if re.fullmatch(r":\d+", word)}
    if name == "kafka":
        said |= {int(port) for port in re.findall(r":(\d+)", service["environment"]["KAFKA_LISTENERS"])}
    by_image = {"akhq": {8080, 28081}, "registry": {8080}, "connect": {8083}, "postgres": {5432}, "minio": {9000}}
    return said | by_image.get(name, set()) | {"polaris": {8181, 8182}, "trino": {8080}}.get(name, set())


def test_it_is_compose() -> None:
    schema = json.loads((files("check_jsonschema") / "builtin_schemas/vendor/compose-spec.json").read_text(encoding="utf-8"))
    jsonschema.validate(COMPOSE, schema, cls=jsonschema.validators.validator_for(schema))
    wrong = {**COMPOSE, "services": {"kafka": {**SERVICES["kafka"], "healthchek": {}}}}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)


def test_variables_are_in_the_example_and_no_secret_has_a_value() -> None:
    variables = {(name, how, word) for name, how, word in VARIABLE.findall(TEXT)}
    assert {name for name, _, _ in variables} == examples().keys()
    for name, how, word in variables:
        assert how in (":?", ":-"), f"{name}: what if it is not set?"
        if how == ":?":
            assert (examples()[name], "is not set; see .env.example") == ("", word), f"{name}: a secret that works unchanged"
        else:
            assert examples()[name] == word, f"{name}: the example is not the default"
    named = [name for name in examples() if re.search("PASSWORD|SECRET|TOKEN|CREDENTIAL", name)]
    assert all(not examples()[name] for name in named)
    assert not re.search(r"(?i)(password|secret|token): (?!\$)\S", TEXT), "a secret is written out"


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_names_is_there(name: str) -> None:
    service = SERVICES[name]
    for other, needs in service.get("depends_on", {}).items():
        if needs["condition"] == "service_healthy":
            assert "healthcheck" in SERVICES[other], other
        else:
            assert (needs["condition"], SERVICES[other]["restart"]) == ("service_completed_successfully", "no"), other
    assert set(service["networks"]) <= COMPOSE["networks"].keys()
    assert {entry["source"] for entry in service.get("configs", [])} <= COMPOSE["configs"].keys()
    for volume in service.get("volumes", []):
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert mode == ["ro"], volume
            check_file(ROOT / source)
        else:
            assert source in COMPOSE["volumes"], volume


def check_file(path: Path) -> None:
    """Hold a mounted file to what it must be."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".yaml":
        assert isinstance(yaml.safe_load(text), dict)
    elif path.suffix == ".py":
        compile(text, path.name, "exec")
    elif path.suffix == ".properties":
        lines = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert all(re.fullmatch(r"[a-z0-9.-]+=\S+", line) for line in lines)
    else:
        assert path.suffix == ".sh"
        assert text.startswith("#!/bin/bash\n")
        assert path.stat().st_mode & 0o111


def test_every_volume_network_and_config_is_used() -> None:
    volumes = {entry.split(":")[0] for service in SERVICES.values() for entry in service.get("volumes", [])}
    assert COMPOSE["volumes"].keys() <= volumes
    assert COMPOSE["networks"].keys() == {network for service in SERVICES.values() for network in service["networks"]}
    assert COMPOSE["configs"].keys() == {entry["source"] for s in SERVICES.values() for entry in s.get("configs", [])}


@pytest.mark.parametrize("name", SERVICES)
def test_images_are_pinned_and_what_stays_is_watched(name: str) -> None:
    service = SERVICES[name]
    tagged, _, digest = service["image"].partition("@")
    image, _, tag = tagged.rpartition(":")
    assert image, "no tag: the newest of that day"
    assert re.search(r"\d+\.\d+|\d{3}|RELEASE\.\d{4}", tag), service["image"]
    if "build" not in service and tagged not in UNPINNED:
        assert re.fullmatch(r"sha256:[0-9a-f]{64}", digest), f"{tagged}: run scripts/pin_images.py"
    assert "no-new-privileges:true" in service["security_opt"]
    if "build" in service:
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["tmpfs"], "Java and Python need a place for temporary files"
    assert ("healthcheck" in service) == (service["restart"] == "unless-stopped")


def test_connect_is_open_to_the_other_containers_alone() -> None:
    assert "ports" not in SERVICES["connect"], "its REST interface asks for no password"


def test_ports_are_open_to_this_machine_alone_and_taken_once() -> None:
    published = [filled(entry, {}) for service in SERVICES.values() for entry in service.get("ports", [])]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", binding) for binding in published), published
    hosts = [binding.split(":")[1] for binding in published]
    assert len(hosts) == len({*hosts})


@pytest.mark.parametrize("name", SERVICES)
def test_health_checks_and_ports_are_where_the_service_listens(name: str) -> None:
    service = SERVICES[name]
    opened = [int(entry.rsplit(":", 1)[1]) for entry in service.get("ports", [])] + [
        int(entry) for entry in service.get("expose", [])
    ]
    assert {*opened} <= listens(name)
    asked = " ".join(service.get("healthcheck", {}).get("test", []))
    ports = [int(port) for port in re.findall(r"localhost[:/](\d+)|--port=(\d+)", asked) for port in port if port]
    assert {*ports} <= listens(name), asked
    if listens(name) and "healthcheck" in service:
        assert ports, "its health check asks no port"


def test_addresses_are_those_of_services_that_listen_there() -> None:
    written = {
        name: [filled(text, {}) for key, value in service.items() if key != "image" for text in texts(value)]
        for name, service in SERVICES.items()
    }
    mounted = [ROOT / entry.split(":")[0] for s in SERVICES.values() for entry in s.get("volumes", []) if entry.startswith(".")]
    written |= {path.name: path.read_text(encoding="utf-8").splitlines() for path in mounted if path.suffix == ".properties"}
    addresses = {(host, int(port)) for lines in written.values() for line in lines for host, port in ADDRESS.findall(line)}
    assert {host for host, _ in addresses} >= {"kafka", "postgres", "minio", "polaris", "registry", "connect", "spark-master"}
    for host, port in addresses:
        assert host == "localhost" or host in SERVICES, host
        assert host == "localhost" or port in listens(host), (host, port)


@pytest.mark.parametrize("name", SERVICES)
def test_settings_are_known(name: str) -> None:
    environment = SERVICES[name].get("environment", {})
    known = (
        {spec.environ for spec in SETTING_SPECS} | {*SECRETS.values()} | BESIDE_SETTINGS
        if name in OWN
        else BY_SERVICE.get(name, set())
    )
    assert environment.keys() <= known
    assert all(isinstance(value, str) for value in environment.values()), "YAML made something else of it"


def test_trino_is_told_what_it_knows_and_gets_every_secret() -> None:
    text = (ROOT / "deploy/compose/trino.properties").read_text(encoding="utf-8")
    properties = dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))
    assert properties.keys() == TRINO
    assert {*re.findall(r"\$\{ENV:(\w+)\}", text)} == SERVICES["trino"]["environment"].keys()


@pytest.mark.parametrize("name", sorted(OWN))
def test_headrace_takes_its_settings(name: str, tmp_path: Path) -> None:
    secrets = {key: "x1y2z3" for key, value in examples().items() if not value}
    environ = {key: filled(value, secrets) for key, value in SERVICES[name]["environment"].items()}
    settings = load_settings(flags={}, environ=environ, folder=tmp_path)
    assert (settings.catalog_type, settings.catalog_credential) == ("rest", "root:x1y2z3")
    assert (settings.is_on_s3, settings.s3_path_style, settings.is_local) == (True, True, False)
    assert (settings.s3_access_key_id, settings.s3_secret_access_key) == ("x1y2z3", "x1y2z3")
    drivers = {"headrace", "dagster-daemon"}
    assert settings.spark_driver_host == (SERVICES[name].get("hostname", "") if name in drivers else "")


def test_postgres_makes_whom_the_others_log_in_as() -> None:
    script = (ROOT / "deploy/compose/postgres-init.sh").read_text(encoding="utf-8")
    assert {*re.findall(r"\\getenv \w+ (\w+)", script)} == SERVICES["postgres"]["environment"].keys() - {"POSTGRES_PASSWORD"}
    owned = dict(re.findall(r"CREATE DATABASE (\w+) OWNER (\w+)", script))
    assert owned == {"analytics": "headrace", "polaris": "polaris", "registry": "registry"}
    assert {*owned.values()} == {*re.findall(r"CREATE ROLE (\w+)", script)}
    assert SERVICES["headrace"]["environment"]["HEADRACE_POSTGRES_URL"].endswith("headrace@postgres:5432/analytics")


def test_make_has_the_targets() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in ("up", "down", "restart", "status", "logs"):
        assert re.search(rf"^docker-{target}:.*## ", makefile, re.MULTILINE), target


class _Polaris(BaseHTTPRequestHandler):
    """Answers as Polaris does, and remembers what it was asked."""

    asked: list[tuple[str, str, str, bytes]]
    has_catalog: bool

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append((self.command, self.path, self.headers.get("Authorization", ""), body))
        if self.path.endswith("/oauth/tokens"):
            self._answer(200, {"access_token": "t0ken"})
        elif self.command == "POST" and type(self).has_catalog:
            self._answer(409, {"error": "it exists"})
        else:
            type(self).has_catalog = True
            self._answer(201, {})

    do_PUT = do_POST  # noqa: N815

    def _answer(self, code: int, body: object) -> None:
        text = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments: object) -> None:
        pass


def test_catalog_is_made_once(capsys: pytest.CaptureFixture[str]) -> None:
    handler = type("Handler", (_Polaris,), {"asked": [], "has_catalog": False})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        environ = {
            key: filled(value, {"POLARIS_ROOT_SECRET": "s3cret"})
            for key, value in SERVICES["polaris-setup"]["environment"].items()
        }
        environ["POLARIS_URL"] = f"http://127.0.0.1:{server.server_port}"
        set_up(environ)
        set_up(environ)
        server.shutdown()
    asked: list[tuple[str, str, str, bytes]] = handler.asked  # type: ignore[attr-defined]
    assert capsys.readouterr().out == "catalog lake: made\ncatalog lake: was there already\n"
    assert [path for _, path, _, _ in asked[:3]] == [
        "/api/catalog/v1/oauth/tokens",
        "/api/management/v1/catalogs",
        "/api/management/v1/catalogs/lake/catalog-roles/catalog_admin/grants",
    ]
    assert {authorization for _, path, authorization, _ in asked if "management" in path} == {"Bearer t0ken"}
    catalog = json.loads(asked[1][3])["catalog"]
    assert catalog["name"] == SERVICES["headrace"]["environment"]["HEADRACE_CATALOG_WAREHOUSE"]
    assert catalog["storageConfigInfo"]["allowedLocations"] == [SERVICES["headrace"]["environment"]["HEADRACE_WAREHOUSE"]]
