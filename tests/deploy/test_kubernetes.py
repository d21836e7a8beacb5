"""deploy/kubernetes without a cluster: its files against the Spark operator's API, Kubernetes' own, and Headrace's settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubeflow_spark_api import models

from headrace.settings import SECRETS, SETTING_SPECS, load_settings
from headrace.spark.submit import IN_IMAGE, SECRET
from headrace.spec import load_pipeline

FOLDER = Path(__file__).resolve().parents[2] / "deploy/kubernetes"
FILES = sorted(path for path in FOLDER.iterdir() if path.suffix in (".yaml", ".template"))
MODELS: dict[tuple[str, str], Any] = {
    ("v1", "Namespace"): models.IoK8sApiCoreV1Namespace,
    ("v1", "ConfigMap"): models.IoK8sApiCoreV1ConfigMap,
    ("v1", "Secret"): models.IoK8sApiCoreV1Secret,
    ("networking.k8s.io/v1", "NetworkPolicy"): models.IoK8sApiNetworkingV1NetworkPolicy,
    ("sparkoperator.k8s.io/v1beta2", "SparkApplication"): models.SparkV1beta2SparkApplication,
    ("sparkoperator.k8s.io/v1beta2", "ScheduledSparkApplication"): models.SparkV1beta2ScheduledSparkApplication,
}


def read(name: str) -> dict[str, Any]:
    manifest: dict[str, Any] = yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))
    return manifest


def applications() -> dict[str, dict[str, Any]]:
    return {"run.yaml": read("run.yaml")["spec"], "build.yaml": read("build.yaml")["spec"]["template"]}


def check(document: dict[str, Any]) -> None:
    """Raise where a value is not of its type, where something is missing, or where a field is not of the API."""
    model = MODELS[document["apiVersion"], document["kind"]]
    assert model.from_dict(document).to_dict() == document, "fields that the API does not have"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_are_what_the_api_takes(path: Path) -> None:
    document = read(path.name)
    check(document)
    assert document["metadata"].get("namespace", document["metadata"]["name"]) == "headrace"


def test_what_the_api_does_not_take_is_found() -> None:
    document = read("run.yaml")
    mistakes: list[dict[str, Any]] = [{"drivr": {}}, {"restartPolicy": {"type": "Sometimes", "onFailure": 3}}]
    for wrong in mistakes:
        with pytest.raises(AssertionError):
            check({**document, "spec": {**document["spec"], **wrong}})
    with pytest.raises(ValueError, match="main"):
        check({**document, "spec": {name: value for name, value in document["spec"].items() if name != "mainApplicationFile"}})
    with pytest.raises(ValueError, match="memory"):
        check({**document, "spec": {**document["spec"], "driver": {"memory": 2}}})


@pytest.mark.parametrize("name", ["run.yaml", "build.yaml"])
def test_application_runs_headrace_from_the_image(name: str, tmp_path: Path) -> None:
    spec = applications()[name]
    lock = (FOLDER.parents[1] / "requirements.lock").read_text(encoding="utf-8")
    assert f"\npyspark=={spec['sparkVersion']} \\\n" in lock
    assert spec["image"] == yaml.safe_load((FOLDER.parents[1] / "compose.yaml").read_text())["services"]["headrace"]["image"]
    assert (spec["type"], spec["mode"], spec["mainApplicationFile"]) == ("Python", "cluster", IN_IMAGE)
    command, pipeline = spec["arguments"]
    assert command in ("run", "build")
    assert load_pipeline(pipeline, environ={}, folder=tmp_path).tables
    for part in (spec["driver"], spec["executor"]):
        careful = part["securityContext"]
        assert (careful["runAsUser"], careful["runAsNonRoot"], careful["allowPrivilegeEscalation"]) == (10001, True, False)
        assert (careful["readOnlyRootFilesystem"], careful["capabilities"]) == (True, {"drop": ["ALL"]})
        assert {"/tmp", "/home/headrace"} <= {entry["mountPath"] for entry in part["volumeMounts"]}, (
            "Java and Python write there"
        )
        assert {entry["name"] for entry in part["volumeMounts"]} <= {entry["name"] for entry in spec["volumes"]}


@pytest.mark.parametrize("name", ["run.yaml", "build.yaml"])
def test_what_an_application_mounts_and_reads_is_there(name: str) -> None:
    spec, config = applications()[name], read("config.yaml")
    volumes = {entry["name"]: entry for entry in spec["volumes"]}
    assert {entry["name"] for entry in spec["driver"]["volumeMounts"]} == volumes.keys()
    assert volumes["settings"]["configMap"]["name"] == config["metadata"]["name"]
    mount = next(entry for entry in spec["driver"]["volumeMounts"] if entry["name"] == "settings")
    assert mount["subPath"] in config["data"]
    assert mount["mountPath"] == f"/srv/headrace/{mount['subPath']}"
    assert spec["driver"]["envFrom"] == [{"secretRef": {"name": SECRET}}]
    assert read("secret.yaml.template")["metadata"]["name"] == SECRET
    assert {entry["name"] for entry in spec["driver"]["env"]} <= {"HEADRACE_PROFILE", *(spec.environ for spec in SETTING_SPECS)}


def test_pods_reach_each_other_and_the_systems_of_the_settings_alone() -> None:
    policy = read("network-policy.yaml")["spec"]
    assert (policy["podSelector"], policy["policyTypes"]) == ({}, ["Ingress", "Egress"])
    assert policy["ingress"] == [{"from": [{"podSelector": {}}]}]
    opened = {
        (target["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"], port["port"])
        for rule in policy["egress"]
        for target in rule.get("to", [])
        if "namespaceSelector" in target
        for port in rule["ports"]
    }
    text = read("config.yaml")["data"]["headrace.toml"]
    named = {(match[0], int(match[1])) for match in re.findall(r"[\w-]+\.([\w-]+)\.svc:(\d+)", text)}
    assert named, "config.yaml names systems"
    assert opened == named | {("kube-system", 53)}
    assert all("ports" in rule or rule["to"] == [{"podSelector": {}}] for rule in policy["egress"])


def test_headrace_takes_the_settings_and_no_secret_has_a_value(tmp_path: Path) -> None:
    (tmp_path / "headrace.toml").write_text(read("config.yaml")["data"]["headrace.toml"], encoding="utf-8")
    secrets = read("secret.yaml.template")["stringData"]
    assert secrets.keys() <= {*SECRETS.values(), "PGPASSWORD"}
    assert not any(secrets.values())
    environ = {**dict.fromkeys(secrets, "id:x1y2z3"), "HEADRACE_PROFILE": "cluster"}
    settings = load_settings(flags={}, environ=environ, folder=tmp_path)
    assert (settings.catalog_type, settings.is_on_s3, settings.s3_path_style) == ("rest", True, True)
    assert settings.spark_master.startswith("k8s://")
    assert settings.catalog_credential == "id:x1y2z3"
