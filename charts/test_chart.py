#!/usr/bin/env python3
"""Tests of the chart: what its rendered manifests say, on the parsed YAML. Run by test.sh, which brings the tools."""
import argparse
import functools
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

CHART = pathlib.Path(__file__).resolve().parent / "tenure"
CI = sorted(CHART.glob("ci/*-values.yaml"))
RELEASE, NAMESPACE = "acme", "queues"
BASE = ["--set", "database.existingSecret=tenure-database"]
ARGS = None  # the command line, set in main


def run(command, **options):
    return subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)


def helm_template(*arguments, chart=CHART, release=RELEASE):
    return run([ARGS.helm, "template", release, chart, "--namespace", NAMESPACE, *arguments])


@functools.lru_cache(maxsize=None)
def render(*arguments, release=RELEASE):
    """The manifests as a list of objects. Do not change them: they are cached."""
    result = helm_template(*arguments, release=release)
    if result.returncode != 0:
        raise AssertionError(result.stderr)
    return [document for document in yaml.load_all(result.stdout, UniqueKeyLoader) if document is not None]


class UniqueKeyLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, which YAML parsers let pass and of which one is lost."""

    def construct_mapping(self, node, deep=False):
        keys = [self.construct_object(key, deep=deep) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise AssertionError(f"a key is there twice: {keys} {node.start_mark}")
        return super().construct_mapping(node, deep)


def of_kind(manifests, kind):
    return [manifest for manifest in manifests if manifest["kind"] == kind]


def one(manifests, kind):
    found = of_kind(manifests, kind)
    if len(found) != 1:
        raise AssertionError(f"expected one {kind}, found {len(found)}")
    return found[0]


def pod_templates(manifests):
    return [(m, m["spec"]["template"]) for m in manifests if m["kind"] in ("Deployment", "Job", "StatefulSet", "DaemonSet")]


def selects(selector, labels):
    return bool(selector) and selector.items() <= labels.items()


def walk(node, path=""):
    """Every (path, key, value) below the node."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield path, key, value
            yield from walk(value, f"{path}.{key}")
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from walk(value, f"{path}[{index}]")


class PerValuesFile:
    """What holds for every values file in ci/. A class per file is made below."""

    values = None

    def setUp(self):
        self.manifests = render("-f", self.values)
        self.own = [m for m in self.manifests if "app.kubernetes.io/managed-by" in m["metadata"].get("labels", {})]

    def test_lint_strict(self):
        result = run([ARGS.helm, "lint", "--strict", CHART, "-f", self.values])
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_kubernetes_accepts_the_manifests(self):
        result = run([ARGS.kubeconform, "-strict", "-summary", "-skip", "ServiceMonitor", "-schema-location",
                      f"{ARGS.schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"],
                     input="\n---\n".join(json.dumps(m) for m in self.manifests))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)

    def test_every_pod_is_restricted(self):
        templates = pod_templates(self.manifests)
        self.assertTrue(templates)
        for owner, template in templates:
            spec = template["spec"]
            with self.subTest(owner["kind"]):
                self.assertIs(spec["automountServiceAccountToken"], False)
                self.assertIs(spec["enableServiceLinks"], False)  # a Service named tenure sets TENURE_PORT otherwise
                self.assertIs(spec["securityContext"]["runAsNonRoot"], True)
                self.assertGreater(spec["securityContext"]["runAsUser"], 0)
                self.assertEqual(spec["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
                for key in ("hostNetwork", "hostPID", "hostIPC"):
                    self.assertNotIn(key, spec)
                for volume in spec.get("volumes", []):
                    self.assertNotIn("hostPath", volume)
                for container in spec["containers"] + spec.get("initContainers", []):
                    context = container["securityContext"]
                    self.assertIs(context["allowPrivilegeEscalation"], False)
                    self.assertIs(context["readOnlyRootFilesystem"], True)
                    self.assertEqual(context["capabilities"], {"drop": ["ALL"]})
                    self.assertNotIn("privileged", context)
                    self.assertIn("requests", container["resources"])
                    self.assertIn("memory", container["resources"]["limits"])

    def test_probes(self):
        container = one(self.manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]
        self.assertEqual(container["livenessProbe"]["httpGet"], {"path": "/livez", "port": "http"})
        self.assertEqual(container["startupProbe"]["httpGet"], {"path": "/livez", "port": "http"})
        self.assertEqual(container["readinessProbe"]["httpGet"], {"path": "/readyz", "port": "http"})
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual(ports, {"grpc": 8470, "http": 8471})
        env = {entry["name"]: entry.get("value") for entry in container["env"]}
        self.assertTrue(env["TENURE_GRPC_LISTEN"].endswith(":8470"))
        self.assertTrue(env["TENURE_HTTP_LISTEN"].endswith(":8471"))

    def test_database_url_comes_from_the_existing_secret(self):
        values = yaml.safe_load(self.values.read_text(encoding="utf-8"))
        database, migrations = values["database"], values.get("migrations", {})
        wanted = {"name": database["existingSecret"], "key": database.get("existingSecretKey", "database-url")}
        for owner, template in pod_templates(self.manifests):
            with self.subTest(owner["kind"]):
                if owner["kind"] == "Job":
                    wanted = {"name": migrations.get("existingSecret", wanted["name"]),
                              "key": migrations.get("existingSecretKey", wanted["key"])}
                urls = [e for e in template["spec"]["containers"][0]["env"] if e["name"] == "TENURE_DATABASE_URL"]
                self.assertEqual(urls, [{"name": "TENURE_DATABASE_URL", "valueFrom": {"secretKeyRef": wanted}}])
        self.assertEqual(of_kind(self.manifests, "Secret"), [])

    def test_no_environment_variable_twice(self):
        for owner, template in pod_templates(self.manifests):
            names = [entry["name"] for entry in template["spec"]["containers"][0]["env"]]
            self.assertEqual(len(names), len(set(names)), owner["kind"])

    def test_selectors_match_the_daemons_and_nothing_else(self):
        deployment = one(self.manifests, "Deployment")
        daemon = deployment["spec"]["template"]["metadata"]["labels"]
        others = [t["metadata"]["labels"] for m, t in pod_templates(self.manifests) if m["kind"] == "Job"]
        selectors = [deployment["spec"]["selector"]["matchLabels"]]
        selectors += [m["spec"]["selector"] for m in of_kind(self.manifests, "Service")]
        selectors += [m["spec"]["selector"]["matchLabels"] for m in of_kind(self.manifests, "PodDisruptionBudget")]
        selectors += [m["spec"]["podSelector"]["matchLabels"] for m in of_kind(self.manifests, "NetworkPolicy")]
        spread = deployment["spec"]["template"]["spec"].get("topologySpreadConstraints", [])
        selectors += [constraint["labelSelector"]["matchLabels"] for constraint in spread]
        for selector in selectors:
            self.assertTrue(selects(selector, daemon), selector)
            for labels in others:
                self.assertFalse(selects(selector, labels), selector)

    def test_services(self):
        services = of_kind(self.manifests, "Service")
        names = [port["name"] for port in
                 one(self.manifests, "Deployment")["spec"]["template"]["spec"]["containers"][0]["ports"]]
        self.assertEqual([s["spec"].get("clusterIP") for s in services], [None, "None"])
        for service in services:
            self.assertEqual(service["spec"]["type"], "ClusterIP")
            for port in service["spec"]["ports"]:
                self.assertIn(port["targetPort"], names)
        self.assertEqual([p["port"] for p in services[1]["spec"]["ports"]], [8470])

    def test_each_daemon_is_scraped_once(self):
        for monitor in of_kind(self.manifests, "ServiceMonitor"):
            self.assertEqual(monitor["apiVersion"], "monitoring.coreos.com/v1")
            self.assertEqual(monitor["spec"]["namespaceSelector"], {"matchNames": [NAMESPACE]})
            selector = monitor["spec"]["selector"]["matchLabels"]
            picked = [s for s in of_kind(self.manifests, "Service") if selects(selector, s["metadata"]["labels"])]
            self.assertEqual(len(picked), 1)
            self.assertEqual([e["path"] for e in monitor["spec"]["endpoints"]], ["/metrics"])
            for endpoint in monitor["spec"]["endpoints"]:
                self.assertIn(endpoint["port"], [port["name"] for port in picked[0]["spec"]["ports"]])

    def test_names_namespaces_and_references_are_filled_in(self):
        for manifest in self.manifests:
            where = f"{manifest['kind']}/{manifest['metadata']['name']}"
            self.assertTrue(manifest["metadata"]["name"], where)
            self.assertLessEqual(len(manifest["metadata"]["name"]), 63, where)
            namespace = "monitoring" if manifest["kind"] == "ServiceMonitor" else NAMESPACE
            self.assertEqual(manifest["metadata"].get("namespace"), namespace, where)
            for path, key, value in walk(manifest):
                if key in ("name", "namespace", "secretName", "serviceAccountName", "image", "key", "matchNames"):
                    self.assertTrue(value, f"{where}{path}.{key} is empty")

    def test_names_are_unique(self):
        names = [(m["kind"], m["metadata"]["name"]) for m in self.manifests]
        self.assertEqual(len(names), len(set(names)), names)

    def test_service_account(self):
        name = one(self.manifests, "Deployment")["spec"]["template"]["spec"]["serviceAccountName"]
        accounts = of_kind(self.manifests, "ServiceAccount")
        if accounts:
            self.assertEqual([a["metadata"]["name"] for a in accounts], [name])
            self.assertIs(accounts[0]["automountServiceAccountToken"], False)
        else:
            self.assertEqual(name, "default")

    def test_migration_job_uses_nothing_of_the_chart(self):
        made = {(m["kind"], m["metadata"]["name"]) for m in self.manifests if m["kind"] != "Job"}
        kinds = {"serviceAccountName": "ServiceAccount", "serviceAccount": "ServiceAccount", "secretName": "Secret",
                 "secretKeyRef": "Secret", "secretRef": "Secret", "configMapKeyRef": "ConfigMap",
                 "configMapRef": "ConfigMap", "configMap": "ConfigMap"}
        for job in of_kind(self.manifests, "Job"):
            for path, key, value in walk(job["spec"]):
                if key in kinds:
                    name = value["name"] if isinstance(value, dict) else value
                    self.assertNotIn((kinds[key], name), made, path)
            self.assertEqual(job["spec"]["template"]["spec"]["restartPolicy"], "Never")
            self.assertEqual(job["spec"]["template"]["spec"]["containers"][0]["args"], ["migrate", "up"])

    def test_same_image_everywhere(self):
        images = {t["spec"]["containers"][0]["image"] for _, t in pod_templates(self.manifests)}
        self.assertEqual(len(images), 1, images)

    def test_termination_grace_outlasts_the_drain(self):
        spec = one(self.manifests, "Deployment")["spec"]["template"]["spec"]
        container = spec["containers"][0]
        grace = next(e["value"] for e in container["env"] if e["name"] == "TENURE_SHUTDOWN_GRACE")
        self.assertRegex(grace, r"^\d+s$")
        sleep = container.get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
        self.assertGreater(spec["terminationGracePeriodSeconds"], int(grace[:-1]) + int(sleep[1]))

    def test_disruption_budget_only_where_a_pod_may_go(self):
        replicas = one(self.manifests, "Deployment")["spec"]["replicas"]
        self.assertEqual(len(of_kind(self.manifests, "PodDisruptionBudget")), 1 if replicas > 1 else 0)

    def test_own_manifests_carry_the_standard_labels(self):
        self.assertTrue(self.own)
        for manifest in self.own:
            for label in ("name", "instance", "version", "component"):
                self.assertIn(f"app.kubernetes.io/{label}", manifest["metadata"]["labels"], manifest["kind"])


for _values in CI:
    _name = "Ci" + "".join(word.capitalize() for word in _values.name[:-len("-values.yaml")].split("-"))
    globals()[_name] = type(_name, (PerValuesFile, unittest.TestCase), {"values": _values})


class Chart(unittest.TestCase):
    def fails(self, *arguments):
        result = helm_template(*arguments)
        self.assertNotEqual(result.returncode, 0, "rendered although it should not")
        return result.stderr

    def test_without_a_database_secret_it_says_what_to_set(self):
        for arguments in ((), ("--set", "migrations.enabled=false"), ("--set", "migrations.existingSecret=other")):
            message = self.fails(*arguments)
            self.assertIn("database.existingSecret is required", message)
            self.assertIn("--set database.existingSecret=", message)
            self.assertIn(f"kubectl create secret generic tenure-database --namespace {NAMESPACE}", message)

    def test_unknown_values_are_refused(self):
        for value in ("replicas=3", "database.exisitngSecret=x", "server.loglevel=debug", "image.name=x",
                      "migrations.hook=true", "livenessProbe.httpGet.path=/", "networkPolicy.allow=true"):
            with self.subTest(value):
                self.assertRegex(self.fails(*BASE, "--set", value), r"(?i)additional propert")

    def test_wrong_values_are_refused(self):
        for value in ("replicaCount=two", "server.logFormat=xml", "server.background=", "service.grpcPort=99999",
                      "image.digest=latest", "database.connections=0", "podDisruptionBudget.maxUnavailable=some"):
            with self.subTest(value):
                self.assertIn("values don't meet the specifications of the schema", self.fails(*BASE, "--set", value))

    def test_what_a_parent_chart_sets_is_accepted(self):
        render(*BASE, "--set", "enabled=true", "--set", "global.region=eu")

    def test_grace_shorter_than_the_drain_is_refused(self):
        message = self.fails(*BASE, "--set", "terminationGracePeriodSeconds=23")
        self.assertIn("terminationGracePeriodSeconds (23) must be larger than", message)
        render(*BASE, "--set", "terminationGracePeriodSeconds=24")

    def test_environment_of_the_chart_is_not_set_twice(self):
        message = self.fails(*BASE, "--set", "extraEnv[0].name=TENURE_LOG_LEVEL", "--set", "extraEnv[0].value=debug")
        self.assertIn("extraEnv sets TENURE_LOG_LEVEL, which the chart sets itself", message)

    def test_migration_hook(self):
        job = one(render(*BASE), "Job")
        self.assertEqual(job["metadata"]["annotations"], {
            "helm.sh/hook": "pre-install,pre-upgrade", "helm.sh/hook-weight": "0",
            "helm.sh/hook-delete-policy": "before-hook-creation,hook-succeeded"})
        self.assertNotIn("serviceAccountName", job["spec"]["template"]["spec"])
        self.assertNotIn("ttlSecondsAfterFinished", job["spec"])

    def test_only_the_job_is_a_hook(self):
        for manifest in render(*BASE):
            hook = "helm.sh/hook" in manifest["metadata"].get("annotations", {})
            self.assertEqual(hook, manifest["kind"] == "Job", manifest["kind"])

    def test_plain_job(self):
        plain = (*BASE, "--set", "migrations.useHook=false")
        job = one(render(*plain), "Job")
        self.assertNotIn("annotations", job["metadata"])
        self.assertRegex(job["metadata"]["name"], r"^acme-tenure-migrate-[0-9a-f]{8}$")
        # A Job cannot be changed: the same content keeps its name, other content takes another.
        same = one(render(*plain, "--set", "replicaCount=5"), "Job")
        self.assertEqual(same, job)
        other = one(render(*plain, "--set", "image.tag=0.2.0"), "Job")
        self.assertNotEqual(other["metadata"]["name"], job["metadata"]["name"])

    def test_plain_job_may_be_removed_after_a_time(self):
        job = one(render(*BASE, "--set", "migrations.useHook=false", "--set", "migrations.ttlSecondsAfterFinished=0"), "Job")
        self.assertEqual(job["spec"]["ttlSecondsAfterFinished"], 0)

    def test_hook_annotations_win_over_values(self):
        job = one(render(*BASE, "--set", r"migrations.annotations.helm\.sh/hook=post-install",
                         "--set", r"migrations.annotations.example\.com/a=b"), "Job")
        self.assertEqual(job["metadata"]["annotations"]["helm.sh/hook"], "pre-install,pre-upgrade")
        self.assertEqual(job["metadata"]["annotations"]["example.com/a"], "b")

    def test_image(self):
        def image(*arguments):
            return one(render(*BASE, *arguments), "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"]
        version = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))["appVersion"]
        digest = "sha256:" + "a" * 64
        self.assertEqual(image(), f"tenured:{version}")
        self.assertEqual(image("--set", "image.tag=edge"), "tenured:edge")
        self.assertEqual(image("--set", "image.tag=edge", "--set", f"image.digest={digest}"), f"tenured@{digest}")

    def test_authentication_is_given_up_in_words_only(self):
        def env(*arguments):
            container = one(render(*BASE, *arguments), "Deployment")["spec"]["template"]["spec"]["containers"][0]
            return {entry["name"]: entry.get("value") for entry in container["env"]}
        self.assertEqual(env()["TENURE_ALLOW_UNAUTHENTICATED"], "true")
        self.assertNotIn("TENURE_ALLOW_UNAUTHENTICATED", env("--set", "server.allowUnauthenticated=false"))

    def test_labels_from_values_do_not_break_selectors(self):
        manifests = render(*BASE, "--set", r"commonLabels.app\.kubernetes\.io/component=x",
                           "--set", r"podLabels.app\.kubernetes\.io/name=y", "--set", "podLabels.tier=back")
        deployment = one(manifests, "Deployment")
        labels = deployment["spec"]["template"]["metadata"]["labels"]
        self.assertTrue(selects(deployment["spec"]["selector"]["matchLabels"], labels))
        self.assertEqual(labels["tier"], "back")

    def test_own_spread_selector_is_kept(self):
        values = ('topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"rack","whenUnsatisfiable":"DoNotSchedule",'
                  '"labelSelector":{"matchLabels":{"a":"b"}}}]')
        spec = one(render(*BASE, "--set-json", values), "Deployment")["spec"]["template"]["spec"]
        self.assertEqual(spec["topologySpreadConstraints"][0]["labelSelector"], {"matchLabels": {"a": "b"}})

    def test_pods_restart_when_extra_objects_change(self):
        def checksum(value):
            objects = f'extraObjects=[{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"x"}},"data":{{"a":"{value}"}}}}]'
            template = one(render(*BASE, "--set-json", objects), "Deployment")["spec"]["template"]
            return template["metadata"]["annotations"]["checksum/extra-objects"]
        self.assertNotEqual(checksum(1), checksum(2))
        self.assertNotIn("annotations", one(render(*BASE), "Deployment")["spec"]["template"]["metadata"])

    def test_optional_manifests_are_off_by_default(self):
        kinds = sorted(m["kind"] for m in render(*BASE))
        self.assertEqual(kinds, ["Deployment", "Job", "PodDisruptionBudget", "Service", "Service", "ServiceAccount"])

    def test_network_policy_defaults_to_the_namespace(self):
        policy = one(render(*BASE, "--set", "networkPolicy.enabled=true"), "NetworkPolicy")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress"])
        self.assertEqual([(rule["ports"][0]["port"], rule["from"]) for rule in policy["ingress"]],
                         [("grpc", [{"podSelector": {}}]), ("http", [{"podSelector": {}}])])

    def test_user_ids_can_be_left_to_the_cluster(self):
        spec = one(render(*BASE, "--set", "podSecurityContext.runAsUser=null", "--set", "podSecurityContext.runAsGroup=null"),
                   "Deployment")["spec"]["template"]["spec"]
        self.assertNotIn("runAsUser", spec["securityContext"])
        self.assertIs(spec["securityContext"]["runAsNonRoot"], True)

    def test_awkward_release_names(self):
        for release in ("tenure", "tenure-" + "x" * 46, "0123", "a" * 53):
            with self.subTest(release):
                manifests = render(*BASE, "--set", "migrations.useHook=false", release=release)
                for manifest in manifests:
                    self.assertRegex(manifest["metadata"]["name"], r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
                    self.assertEqual(manifest["metadata"]["labels"]["app.kubernetes.io/instance"], release)
                names = [(m["kind"], m["metadata"]["name"]) for m in manifests]
                self.assertEqual(len(names), len(set(names)))
        self.assertEqual(one(render(*BASE, release="tenure"), "Deployment")["metadata"]["name"], "tenure")

    def test_notes_say_what_to_run_next(self):
        def notes(*arguments):
            with tempfile.TemporaryDirectory() as folder:
                copy = pathlib.Path(folder) / "tenure"
                shutil.copytree(CHART, copy)
                (copy / "templates" / "notes-test.yaml").write_text(
                    'apiVersion: v1\nkind: ConfigMap\nmetadata: {name: notes}\ndata:\n'
                    '  notes: {{ include (print $.Template.BasePath "/NOTES.txt") . | toJson }}\n', encoding="utf-8")
                result = helm_template(*BASE, *arguments, chart=copy)
                self.assertEqual(result.returncode, 0, result.stderr)
                return one(list(yaml.safe_load_all(result.stdout)), "ConfigMap")["data"]["notes"]
        text = notes()
        for line in (f"kubectl --namespace {NAMESPACE} rollout status deployment/acme-tenure", "tenurectl server list",
                     "port-forward service/acme-tenure 8470:8470", f"dns:///acme-tenure-headless.{NAMESPACE}.svc:8470",
                     "up to 16 connections", "WARNING: the API is served without authentication"):
            self.assertIn(line, text)
        self.assertIn("component=migrate", notes("--set", "migrations.useHook=false"))
        self.assertIn("Migrations are off", notes("--set", "migrations.enabled=false"))
        self.assertNotIn("WARNING", notes("--set", "server.allowUnauthenticated=false"))


class Documents(unittest.TestCase):
    def paths(self, node, prefix=""):
        """Value paths as the README lists them: maps that have keys of their own are opened, leaf maps are not."""
        leaves = {"resources", "podSecurityContext", "securityContext", "strategy", "startupProbe", "livenessProbe",
                  "readinessProbe"}
        for key, value in node.items():
            if isinstance(value, dict) and value and key not in leaves:
                yield from self.paths(value, f"{prefix}{key}.")
            else:
                yield prefix + key

    def test_readme_lists_every_value_and_no_other(self):
        values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        listed = re.findall(r"^\| `([A-Za-z.]+)` \|", (CHART / "README.md").read_text(encoding="utf-8"), re.M)
        self.assertEqual(sorted(listed), sorted(self.paths(values)))

    def test_schema_knows_every_value(self):
        schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
        self.assertIs(schema["additionalProperties"], False)
        values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
        self.assertEqual(set(values) | {"global", "enabled"}, set(schema["properties"]))
        for name, value in values.items():
            known = schema["properties"][name]
            if isinstance(value, dict) and known.get("additionalProperties") is False:
                self.assertLessEqual(set(value), set(known["properties"]), name)

    def test_schemas_refuse_what_kubernetes_would(self):
        """The check of the manifests is worth something: a field that does not exist, a wrong type and a lacking field fail."""
        good = one(render(*BASE), "Deployment")
        for change in (lambda c: c.update(imagge="x"), lambda c: c.update(image=3), lambda c: c.pop("name")):
            bad = json.loads(json.dumps(good))
            change(bad["spec"]["template"]["spec"]["containers"][0])
            result = run([ARGS.kubeconform, "-strict", "-schema-location",
                          f"{ARGS.schemas}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json"], input=json.dumps(bad))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn("is invalid", result.stdout + result.stderr)


def main():
    global ARGS  # pylint: disable=global-statement
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--helm", "--kubeconform", "--schemas"):
        parser.add_argument(name, required=True)
    ARGS = parser.parse_args()
    suite = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=1).run(suite)
    bad = {getattr(test, "test_case", test).id() for test, _ in result.failures + result.errors}
    print(f"chart-test: {result.testsRun - len(bad)} passed, {len(bad)} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
