"""The manifests of Kubernetes: valid, of one mind, and true of the server that they start."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kubernetes_validate  # type: ignore[import-untyped]
import pytest

from deadlined.http import Timeouts
from deadlined.service.config import ServeConfig
from tests.support.admin import admin_of
from tests.support.command import Process, Starter, read_all
from tests.support.deployment import (
    EXAMPLES,
    LATEST,
    ROOT,
    SHOP,
    Document,
    documents,
    duration,
    image_variables,
    instruction,
    with_any_port,
)

FOLDER = EXAMPLES / "kubernetes"
# what `kubectl apply -f examples/kubernetes/` applies: the files of the folder, not those of folders in it
APPLIED = [document for path in sorted(FOLDER.glob("*.yaml")) for document in documents(path)]
LOAD_TEST = documents(FOLDER / "loadtest" / "loadtest.yaml")
MONITOR = documents(FOLDER / "prometheus-operator" / "monitor.yaml")
ALL = [document for path in sorted(FOLDER.rglob("*.yaml")) for document in documents(path)]
# those of the service
OWN = APPLIED + MONITOR
BY_KIND = {document["kind"]: document for document in OWN if document["kind"] != "Service"}
SERVICES = {document["metadata"]["name"]: document["spec"] for document in OWN if document["kind"] == "Service"}

# what Kubernetes itself has; a ServiceMonitor is the Prometheus operator's
BUILT_IN = [document for document in ALL if document["kind"] != "ServiceMonitor"]

# the oldest with all that is used, and the newest that the library knows
VERSIONS = ["1.25", kubernetes_validate.latest_version()]

DEPLOYMENT = BY_KIND["Deployment"]["spec"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]
LABELS = DEPLOYMENT["template"]["metadata"]["labels"]
PORTS = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
VARIABLES = {variable["name"]: variable["value"] for variable in CONTAINER["env"]}
PROBES = {name: CONTAINER[f"{name}Probe"]["httpGet"] for name in ("startup", "readiness", "liveness")}
HEAD = b"POST /orders HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
TOKEN = "s3cret"
WITH_TOKEN = {"authorization": f"Bearer {TOKEN}"}


def name(document: Document) -> str:
    return f"{document['kind']}-{document['metadata']['name']}"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("document", BUILT_IN, ids=name)
def test_each_is_valid(document: Document, version: str) -> None:
    kubernetes_validate.validate(document, version, strict=True)


def broken(**changes: Any) -> Document:
    document = copy.deepcopy(BY_KIND["Deployment"])
    document["spec"].update(changes)
    return document


@pytest.mark.parametrize("changes", [{"replicas": "three"}, {"replica": 3}, {"template": "shop"}])
def test_the_validation_finds_mistakes(changes: dict[str, Any]) -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken(**changes), VERSIONS[-1], strict=True)


# groups of the programming interface that every cluster has; others are of custom resources
BUILT_IN_GROUPS = {"v1", "apps/v1", "autoscaling/v2", "policy/v1", "batch/v1"}


@pytest.mark.parametrize("document", APPLIED, ids=name)
def test_what_one_command_applies_needs_no_operator_and_attacks_nothing(document: Document) -> None:
    assert document["apiVersion"] in BUILT_IN_GROUPS
    assert document["kind"] not in {"Job", "CronJob", "Pod"}
    assert document not in LOAD_TEST


def test_the_page_tells_what_to_change_before_the_command_and_what_the_command_applies() -> None:
    section = (ROOT / "docs" / "deployment.md").read_text().partition("\n## Kubernetes\n")[2].partition("\n## ")[0]
    before, command, after = section.partition("$ kubectl apply -f examples/kubernetes/\n")
    assert command
    assert CONTAINER["image"] in before
    assert f"DEADLINED_TRUSTED_PROXIES: {VARIABLES['DEADLINED_TRUSTED_PROXIES']}" in before
    assert "prometheus-adapter" in before
    applied, folders = after.split("\n| folder | |\n")
    assert set(re.findall(r"examples/kubernetes/([\w./-]+)", applied)) == {path.name for path in FOLDER.glob("*.yaml")}
    assert set(re.findall(r"^\| \[([\w-]+)\]", folders, re.MULTILINE)) == {
        path.name for path in FOLDER.iterdir() if path.is_dir()
    }


def test_the_files_have_what_they_should() -> None:
    assert set(BY_KIND) == {"Deployment", "HorizontalPodAutoscaler", "PodDisruptionBudget", "ServiceMonitor"}
    assert set(SERVICES) == {"shop", "shop-admin"}
    assert len({name(document) for document in ALL}) == len(ALL)
    assert [name(document) for document in LOAD_TEST if document["kind"] == "Job"] == [
        "Job-loadtest-master",
        "Job-loadtest-workers",
    ]


def test_the_load_test_holds_for_longer_than_a_deadline_and_asks_no_more_than_its_workers_can() -> None:
    (settings,) = (document["data"] for document in LOAD_TEST if document["kind"] == "ConfigMap")
    assert urlsplit(settings["LOCUST_HOST"]).hostname == settings["LOADTEST_OWNED"]
    assert settings["LOADTEST_OWNED"].split(".")[0] in SERVICES
    assert "idle" in settings["LOADTEST_ATTACKS"]
    assert float(settings["LOADTEST_LIMIT"]) > Timeouts().idle + 2
    master, workers = (document["spec"] for document in LOAD_TEST if document["kind"] == "Job")
    (command,) = master["template"]["spec"]["containers"][0]["args"]
    # a third of the users are honest
    honest = int(re.findall(r"--users (\d+)", command)[0]) / 3
    assert honest * float(settings["LOADTEST_RATE"]) / workers["parallelism"] <= 300


def test_a_pod_is_not_killed_before_its_drain_has_ended() -> None:
    command, seconds = CONTAINER["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    assert float(seconds) + duration(VARIABLES["DEADLINED_DRAIN"]) + LATEST < POD["terminationGracePeriodSeconds"]


def test_a_pod_that_drains_is_neither_restarted_nor_missed() -> None:
    # between two looks of the readiness probe a pod may be late by as much as preStop waits
    readiness, liveness = CONTAINER["readinessProbe"], CONTAINER["livenessProbe"]
    assert liveness["periodSeconds"] * liveness["failureThreshold"] > readiness["periodSeconds"]
    assert PROBES["liveness"]["path"] == "/livez"


def test_the_pod_runs_as_the_user_of_the_image_and_can_change_nothing() -> None:
    uid, gid = map(int, instruction("USER").split(":"))
    context = POD["securityContext"]
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (uid, gid, True)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def test_the_ports_are_those_of_the_server() -> None:
    assert ServeConfig().port == PORTS["http"] == int(instruction("EXPOSE"))
    assert VARIABLES["DEADLINED_ADMIN"] == f"0.0.0.0:{PORTS['admin']}"
    # else the server would listen on the loopback interface of the pod
    assert image_variables()["DEADLINED_HOST"] == "0.0.0.0"


def test_the_resources_select_one_another() -> None:
    assert DEPLOYMENT["selector"]["matchLabels"].items() <= LABELS.items()
    assert BY_KIND["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"].items() <= LABELS.items()
    target = BY_KIND["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]
    assert target == {"apiVersion": "apps/v1", "kind": "Deployment", "name": BY_KIND["Deployment"]["metadata"]["name"]}
    for service in SERVICES.values():
        assert service["selector"].items() <= LABELS.items()
        assert {port["targetPort"] for port in service["ports"]} <= set(PORTS)
    assert {port["targetPort"] for port in SERVICES["shop"]["ports"]} == {"http"}


def test_an_autoscaler_never_has_fewer_than_the_disruption_budget_needs() -> None:
    least = BY_KIND["HorizontalPodAutoscaler"]["spec"]["minReplicas"]
    assert least == DEPLOYMENT["replicas"]
    assert least > BY_KIND["PodDisruptionBudget"]["spec"]["maxUnavailable"]


def test_the_monitor_finds_one_service_its_port_and_the_token() -> None:
    monitor = BY_KIND["ServiceMonitor"]["spec"]
    wanted = monitor["selector"]["matchLabels"].items()
    services = [document for document in OWN if document["kind"] == "Service"]
    (found,) = [service for service in services if wanted <= service["metadata"]["labels"].items()]
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in found["spec"]["ports"]}
    (volume,) = POD["volumes"]
    (mount,) = CONTAINER["volumeMounts"]
    credentials = endpoint["authorization"]["credentials"]
    assert (volume["name"], volume["secret"]["secretName"]) == (mount["name"], credentials["name"])
    assert VARIABLES["DEADLINED_ADMIN_TOKEN_FILE"] == f"{mount['mountPath']}/{credentials['key']}"


def started(start: Starter, folder: Path) -> Process:
    """Start what the container starts, with its arguments and variables, on other ports."""
    token = folder / "token"
    token.write_text(TOKEN)
    variables = image_variables() | VARIABLES
    # where the image has its packages is no matter here
    variables |= {"DEADLINED_ADMIN": with_any_port(VARIABLES["DEADLINED_ADMIN"])}
    variables |= {"DEADLINED_ADMIN_TOKEN_FILE": str(token)}
    command, *arguments = CONTAINER["args"]
    assert command == "serve"
    return start(*arguments, "--app-dir", str(SHOP), **variables)


def test_the_server_answers_the_probes_and_prometheus(start: Starter, tmp_path: Path) -> None:
    process = started(start, tmp_path)
    admin = admin_of(process)
    assert process.url.startswith("http://0.0.0.0:")
    # as the kubelet asks: without a token, by the address of the pod
    fields = {"host": "10.244.1.7:9000", "user-agent": "kube-probe/1.30"}
    for probe in PROBES.values():
        assert probe["port"] == "admin"
        assert admin.get(probe["path"], headers=fields).status == 200
    (endpoint,) = BY_KIND["ServiceMonitor"]["spec"]["endpoints"]
    assert admin.get(endpoint["path"]).status == 401
    assert endpoint["authorization"]["type"] == "Bearer"
    metrics = admin.get(endpoint["path"], headers=WITH_TOKEN)
    assert metrics.status == 200
    scaled = {
        metric["pods"]["metric"]["name"]
        for metric in BY_KIND["HorizontalPodAutoscaler"]["spec"]["metrics"]
        if metric["type"] == "Pods"
    }
    # a gauge without labels: what an adapter offers of a pod is one number
    assert scaled == {"deadlined_requests_in_flight"}
    assert b"# TYPE deadlined_requests_in_flight gauge\ndeadlined_requests_in_flight 0" in metrics.body


def test_a_pod_that_drains_is_alive_and_not_ready_and_answers_what_it_has(start: Starter, tmp_path: Path) -> None:
    process = started(start, tmp_path)
    admin = admin_of(process)
    body = b'{"item": "tea"}'
    with process.connect() as client:
        client.sendall(HEAD % len(body))
        while b"\ndeadlined_requests_in_flight 1" not in admin.get("/metrics", headers=WITH_TOKEN).body:
            pass
        process.signal()
        process.wait_for("draining")
        assert admin.get(PROBES["readiness"]["path"]).status == 503
        assert admin.get(PROBES["liveness"]["path"]).status == 200
        client.sendall(body)
        assert read_all(client).startswith("HTTP/1.1 201 ")
    assert process.end()[0] == 0
