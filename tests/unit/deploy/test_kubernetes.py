"""The manifests for Kubernetes: what its client knows of them, and what a server does with the settings in them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from server.settings.loading import load_settings
from tests.kubernetes_fields import unknown_fields

FOLDER = Path(__file__).parents[3] / "deploy" / "kubernetes"
FILES = [FOLDER / "one-server.yaml", FOLDER / "several-servers.yaml"]
SANDBOXES = FOLDER / "sandboxes.yaml"


def resources(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text("utf-8")))


def one(file: Path, *kinds: str) -> dict[str, Any]:
    (found,) = [resource for resource in resources(file) if resource["kind"] in kinds]
    return found


def pod(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = one(file, "Deployment", "StatefulSet")["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_kubernetes_knows_every_field(file: Path) -> None:
    for resource in resources(file):
        assert unknown_fields(resource, f"V1{resource['kind']}") == []


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_what_they_name_is_there(file: Path) -> None:
    spec = pod(file)
    named = {resource["metadata"]["name"] for resource in resources(file)}
    claimed = {
        claim["metadata"]["name"]
        for claim in one(file, "Deployment", "StatefulSet")["spec"].get("volumeClaimTemplates", ())
    }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for container in [*spec["containers"], *spec.get("initContainers", ())]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes) | claimed
        assert set(container["resources"]["limits"]) >= {"cpu", "memory"}
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    for volume in volumes.values():
        assert volume.get("configMap", {"name": "drydock"})["name"] in named
        assert volume.get("persistentVolumeClaim", {"claimName": "drydock"})["claimName"] in named
    wanted = {"app.kubernetes.io/name": "drydock"}
    for service in (resource for resource in resources(file) if resource["kind"] == "Service"):
        assert service["spec"]["selector"] == wanted
        assert service["spec"]["ports"][0]["targetPort"] in {port["name"] for port in spec["containers"][0]["ports"]}
    assert one(file, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"] == wanted
    assert {
        probe: spec["containers"][0][probe]["httpGet"]["path"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe")
    } == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready" if file.stem == "one-server" else "/health",
    }


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_server_takes_the_settings_that_they_give_it(file: Path, tmp_path: Path) -> None:
    config = tmp_path / "drydock.toml"
    config.write_text(one(file, "ConfigMap")["data"]["drydock.toml"])
    secrets = {"token": "a-token-of-24-characters-or-more", "database-url": "postgresql://drydock:x@postgresql/drydock"}
    for name, value in secrets.items():
        (tmp_path / name).write_text(f"{value}\n")
    given = {entry["name"]: entry.get("value", "server-0") for entry in pod(file)["containers"][0]["env"]}
    environment = {
        name: re.sub(r"^/(etc|run/secrets)/drydock", str(tmp_path), value).replace("$(POD_NAME)", "server-0")
        for name, value in given.items()
        if name.startswith("DRYDOCK_")
    }
    settings = load_settings(None, environment)
    assert settings.token is not None
    assert settings.token.get_secret_value() == secrets["token"]
    assert (settings.sandbox, settings.kubernetes_namespace) == (
        "kubernetes",
        one(SANDBOXES, "Namespace")["metadata"]["name"],
    )
    assert tomllib.loads(config.read_text())["trusted_proxies"] == list(settings.trusted_proxies)
    if file.stem == "several-servers":
        assert settings.database_url == secrets["database-url"]
        (headless,) = [one for one in resources(file) if one.get("spec", {}).get("clusterIP") == "None"]
        assert settings.cluster_url == f"http://server-0.{headless['metadata']['name']}:3000"


def test_servers_have_the_account_that_may_make_sandboxes_and_no_other_rights() -> None:
    page = (FOLDER.parents[1] / "docs" / "kubernetes.md").read_text("utf-8")
    shown = {one["kind"]: one for one in yaml.safe_load_all(re.findall(r"^```yaml\n(.*?)^```", page, re.M | re.S)[0])}
    for kind in ("Namespace", "Role", "ResourceQuota"):
        assert one(SANDBOXES, kind) == shown[kind]
    account = one(SANDBOXES, "ServiceAccount")["metadata"]
    (subject,) = one(SANDBOXES, "RoleBinding")["subjects"]
    assert (subject["name"], subject["namespace"]) == (account["name"], account["namespace"])
    for file in FILES:
        assert pod(file)["serviceAccountName"] == account["name"]
