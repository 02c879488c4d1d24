"""Checks the Helm chart: every values file renders the same in every Helm, and what is rendered keeps its promises.

Without a cluster it cannot see scheduling, autoscaling, admission or balancers at work.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

import kubernetes_validate
import yaml

CHART = pathlib.Path("helm/portero")
KUBERNETES = [f"1.{minor}" for minor in range(29, 38)]
SELECTOR = {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}
# Values that must be refused, and what the answer must name.
REFUSED = [
    (["colour=red"], "colour"),
    (["roles.edge.colour=red"], "colour"),
    (["topology=triple"], "topology"),
    (["database.existingSecret="], "database.existingSecret"),
    (["database.host="], "database: give host"),
    (["keyring.existingSecret="], "keyring"),
    (["keyring.active="], "keyring"),
    (["keyring.unprotected=true"], "keyring: unprotected excludes"),
    (["roles.stream.keyring=false"], "keyring"),
    (["auth.localIssuer.existingSecret="], "auth"),
    (["auth.issuers[0].issuer=x", "auth.issuers[0].audience=y"], "auth"),
    (["auth.issuers[0].issuer=x", "auth.issuers[0].jwksUrl=https://x"], "audience"),
    (["auth.kubernetes.enabled=true", "auth.kubernetes.issuer=http://x"], "issuer"),
    ([f"auth.kubernetes.subjects[0].{part}" for part in ("subject=ada", "role=viewer")], "is no service account"),
    ([f"auth.kubernetes.subjects[0].{part}" for part in ("subject=system:serviceaccount:a:b", "role=admin")], "role"),
    (["tls.edge.clientCa.existingSecret=a"], "tls.edge.clientCa"),
    (["tls.grpc.clientCrl.existingSecret=a"], "tls.grpc.clientCrl"),
    (
        [
            "tls.grpc.existingSecret=a",
            "tls.grpc.clientCa.existingSecret=a",
            "tls.grpc.clientCrl.existingSecret=a",
            "tls.grpc.clientCrl.configMap=a",
        ],
        "tls.grpc.clientCrl",
    ),
    (["tls.grpc.colour=red"], "colour"),
    (["trustedProxies.networks[0]=ingress.example"], "networks"),
    (["trustedProxies.header=x-real-ip"], "header"),
    (["limits.tenantBurst=5"], "tenantBurst"),
    (["management.clockSkewMaxSeconds=0"], "clockSkewMaxSeconds"),
    (["database.ca.existingSecret=a", "database.ca.configMap=b"], "database.ca"),
    (["redis.url=redis://a", "redis.ca.configMap=b"], "rediss://"),
    (["redis.url=redis://user:hunter2@host"], "redis.url"),
    (["redis.url=redis://a", "redis.existingSecret=b"], "redis: give url or existingSecret"),
    (["config.database.url=postgres://a"], "config.database.url"),
    (["roles.stream.terminationGracePeriodSeconds=74"], "roles.stream.terminationGracePeriodSeconds: 74"),
    (["roles.edge.autoscaling.minReplicas=9"], "roles.edge.autoscaling"),
    (["roles.edge.ingress.enabled=true"], "roles.edge.ingress.hosts"),
    (["defaults.pdb.maxUnavailable=0"], "maxUnavailable"),
    (["roles.edge.enabled=false", "roles.stream.enabled=false", "roles.admin.enabled=false"], "roles"),
]

problems = []


def check(held, message):
    if not held:
        problems.append(message)


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)


def render(helm, chart, values, *more):
    done = run(helm, "template", "release", chart, "--namespace", "gateway", "--kube-version", "1.29.0", "-f", values, *more)
    check(done.returncode == 0, f"{values.name}: {helm} template: {done.stderr.strip()}")
    return done.stdout


def pod_spec(thing):
    if thing["kind"] == "Pod":
        return thing["spec"]
    return thing.get("spec", {}).get("template", {}).get("spec")


def secrets_of(pod):
    return {volume["secret"]["secretName"] for volume in pod["volumes"] if "secret" in volume}


def files_of(settings):
    """All files below /etc/portero that a configuration names."""
    for value in settings.values() if isinstance(settings, dict) else settings:
        if isinstance(value, (dict, list)):
            yield from files_of(value)
        elif isinstance(value, str) and value.startswith("/etc/portero/"):
            yield value


def check_pod(where, thing, default_contexts, config, own_volumes):
    pod = pod_spec(thing)
    check(pod["automountServiceAccountToken"] is False, f"{where}: mounts a service account token")
    check(pod["enableServiceLinks"] is False, f"{where}: service links are on")
    context = pod.get("securityContext", {})
    if default_contexts:
        check(context.get("runAsNonRoot") is True, f"{where}: may run as root")
        check(context.get("seccompProfile") == {"type": "RuntimeDefault"}, f"{where}: seccomp profile")
    names = {volume["name"] for volume in pod["volumes"]}
    for container in pod["containers"]:
        own = container.get("securityContext", {})
        check(own.get("allowPrivilegeEscalation") is False, f"{where}: may escalate")
        check(own.get("readOnlyRootFilesystem") is True, f"{where}: writable root file system")
        check(own.get("capabilities") == {"drop": ["ALL"]}, f"{where}: capabilities")
        for mount in container["volumeMounts"]:
            check("subPath" not in mount, f"{where}: subPath {mount['mountPath']} is never updated")
            check(mount["name"] in names, f"{where}: mount {mount['name']} has no volume")
    for volume in pod["volumes"]:
        mode = volume.get("secret", volume.get("projected", {"defaultMode": 0o440})).get("defaultMode")
        check(mode == 0o440, f"{where}: {volume['name']} has mode {mode}: keys that others may read are refused")
    component = thing["metadata"]["labels"]["app.kubernetes.io/component"]
    if thing["kind"] == "Deployment":
        config_and_secrets(where, thing, component, pod, config)
    else:
        check(names <= {"tmp", "database", "database-ca"} | own_volumes, f"{where}: needs only the database: {names}")


def config_and_secrets(where, thing, component, pod, config):
    """Each role mounts what its configuration names, and nothing of the others."""
    names = {volume["name"] for volume in pod["volumes"]}
    protected = not config["keyring"].get("unprotected", False)
    check(("keyring" in names) == protected, f"{where}: keyring for {component}")
    if component == "edge":
        others = ("jwks", "local-issuer", "kubernetes", "grpc-")
        check(not any(name.startswith(others) for name in names), f"{where}: keys of other roles: {names}")
    if component in ("stream", "admin"):
        check(not any(name.startswith("edge-") for name in names), f"{where}: keys of the edge: {names}")
    mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
    for path in files_of(config):
        folder = max((m for m in mounts if path == m or path.startswith(m + "/")), key=len, default=None)
        check(folder is not None, f"{where}: {path} is in the configuration and not mounted")
    tokens = [v for v in pod["volumes"] if any("serviceAccountToken" in s for s in v.get("projected", {}).get("sources", []))]
    wanted = any(issuer.get("bearer_token_file") for issuer in config.get("auth", {}).get("issuers", []))
    check(len(tokens) == int(wanted), f"{where}: {len(tokens)} service account tokens")
    labels = thing["spec"]["selector"]["matchLabels"]
    check(set(labels) == SELECTOR, f"{where}: selector {sorted(labels)} can never change")
    check(set(labels.items()) <= set(thing["spec"]["template"]["metadata"]["labels"].items()), f"{where}: selector")


def check_hooks(name, things):
    """A hook before installation may use only hooks and what exists before the release."""
    made = {}
    for thing in things:
        hook = thing["metadata"].get("annotations", {}).get("helm.sh/hook", "")
        made[(thing["kind"], thing["metadata"]["name"])] = "pre-install" in hook
    for thing in things:
        if not made[(thing["kind"], thing["metadata"]["name"])] or not pod_spec(thing):
            continue
        pod = pod_spec(thing)
        used = {("ServiceAccount", pod["serviceAccountName"])} | {("Secret", secret) for secret in secrets_of(pod)}
        used |= {("ConfigMap", volume["configMap"]["name"]) for volume in pod["volumes"] if "configMap" in volume}
        for reference in used:
            check(made.get(reference, True), f"{name}: the hook {thing['metadata']['name']} needs {reference}, made later")


def check_scaling(name, things):
    kinds = {}
    for thing in things:
        kinds.setdefault(thing["kind"], {})[thing["metadata"]["name"]] = thing
    scalers = kinds.get("HorizontalPodAutoscaler", {})
    for deployment, thing in kinds["Deployment"].items():
        check(("replicas" in thing["spec"]) != (deployment in scalers), f"{name}: {deployment}: replicas and autoscaler")
        least = thing["spec"].get("replicas", scalers.get(deployment, {}).get("spec", {}).get("minReplicas", 0))
        budget = deployment in kinds.get("PodDisruptionBudget", {})
        check(not budget or least > 1, f"{name}: {deployment}: a disruption budget at {least} pods")
    for service, thing in kinds["Service"].items():
        wanted = thing["spec"]["selector"].items()
        check(
            any(wanted <= d["spec"]["template"]["metadata"]["labels"].items() for d in kinds["Deployment"].values()),
            f"{name}: Service {service} selects no Deployment",
        )


def check_values(helms, values):
    name = values.name
    texts = []
    for helm in helms:
        lint = run(helm, "lint", "--strict", "--quiet", CHART, "-f", values)
        check(lint.returncode == 0, f"{name}: {helm} lint: {lint.stdout}{lint.stderr}")
        texts.append(render(helm, CHART, values))
    texts.append(render(helms[-1], CHART, values))
    check(len(set(texts)) == 1, f"{name}: renders differ between Helm versions or from one render to the next")
    things = [thing for thing in yaml.safe_load_all(texts[0]) if thing]
    configs = {
        thing["metadata"]["name"]: tomllib.loads(thing["data"]["config.toml"])
        for thing in things
        if thing["kind"] == "ConfigMap" and "config.toml" in thing["data"]
    }
    given = yaml.safe_load(values.read_text())
    own_volumes = {volume["name"] for volume in given.get("defaults", {}).get("extraVolumes", [])}
    contexts = "securityContext" not in values.read_text().lower().replace("podsecuritycontext", "securitycontext")
    for thing in things:
        where = f"{name}: {thing['kind']} {thing['metadata']['name']}"
        check(thing["kind"] != "Secret", f"{where}: the chart makes no Secret")
        check(thing["metadata"].get("namespace") == "gateway", f"{where}: no namespace")
        for version in KUBERNETES:
            try:
                kubernetes_validate.validate(thing, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                check(False, f"{where}: Kubernetes {version}: {error.message} at {list(error.path)}")
        if pod_spec(thing) and thing["kind"] != "Pod":
            check_pod(where, thing, contexts, configs.get(thing["metadata"]["name"]), own_volumes)
    check_hooks(name, things)
    check_scaling(name, things)
    return things


def check_configs(name, things, program):
    count = 0
    for thing in things:
        text = thing.get("data", {}).get("config.toml") if thing["kind"] == "ConfigMap" else None
        if text is None:
            continue
        where = f"{name}: {thing['metadata']['name']}"
        count += 1
        try:
            config = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            check(False, f"{where}: no TOML: {error}")
            continue
        check(config["roles"], f"{where}: no roles")
        if program:
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(text)
                file.flush()
                done = run(program, "config", "check", "--config", file.name)
            check(done.returncode == 0, f"{where}: the program refuses it: {done.stderr.strip() or done.stdout.strip()}")
    return count


def check_refusals(helms):
    values = CHART / "ci/default-minimal.yaml"
    for settings, wanted in REFUSED:
        for helm in helms:
            sets = [part for setting in settings for part in ("--set", setting)]
            done = run(helm, "template", "release", CHART, "-f", values, *sets)
            refused = done.returncode != 0 and wanted in done.stderr
            check(refused, f"{settings} must be refused with {wanted!r} by {helm}, said: {done.stderr.strip()[-300:]}")


def check_subchart(helms):
    """As a dependency: switched by `enabled`, with the parent's globals."""
    values = yaml.safe_load((CHART / "ci/default-minimal.yaml").read_text())
    with tempfile.TemporaryDirectory() as folder:
        parent = pathlib.Path(folder)
        shutil.copytree(CHART, parent / "charts/portero")
        dependency = {"name": "portero", "version": "0.1.0", "condition": "portero.enabled"}
        meta = {"apiVersion": "v2", "name": "parent", "version": "1.0.0", "dependencies": [dependency]}
        (parent / "Chart.yaml").write_text(yaml.safe_dump(meta))
        for enabled in (True, False):
            globals_ = {"imageRegistry": "registry.example.internal", "ofTheParent": 1}
            file = parent / "own.yaml"
            file.write_text(yaml.safe_dump({"global": globals_, "portero": {"enabled": enabled, **values}}))
            for helm in helms:
                text = render(helm, parent, file)
                check(("image:" in text) == enabled, f"as a dependency: enabled={enabled} is not heeded")
                check("ghcr.io" not in text, "as a dependency: global.imageRegistry is not heeded")


def leaves(values, prefix=""):
    for key, value in values.items():
        path = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from leaves(value, path + ".")
        else:
            yield path


def values_table():
    """The README's table, from values.yaml and its `## @param` comments."""
    text = (CHART / "values.yaml").read_text()
    values = yaml.safe_load(text)
    explained = re.findall(r"^## @param (\S+) (.+)$", text, re.MULTILINE)
    # A block that is explained as a whole needs no word on its parts.
    paths = {path for path, _ in explained}
    for path in leaves(values):
        parts = path.split(".")
        covered = any(".".join(parts[:n]) in paths for n in range(1, len(parts) + 1))
        check(covered, f"values.yaml: {path} has no @param")
    rows = ["| Value | Meaning | Default |", "| --- | --- | --- |"]
    for path, words in explained:
        value = values
        for part in path.split("."):
            check(isinstance(value, dict) and part in value, f"values.yaml: @param {path} explains nothing")
            value = value.get(part) if isinstance(value, dict) else None
        default = json.dumps(value)
        rows.append(f"| `{path}` | {words} | {f'`{default}`' if len(default) <= 60 else 'see `values.yaml`'} |")
    return "\n".join(rows)


def check_documents(write):
    readme = CHART / "README.md"
    text = readme.read_text()
    old = re.search(r"^\| Value \|.*?\|$(?=\n\n|\n\Z)", text, re.MULTILINE | re.DOTALL)
    if not old:
        check(False, "README.md: no table of values")
    elif write:
        readme.write_text(text[: old.start()] + values_table() + text[old.end() :])
    else:
        check(old[0] == values_table(), "README.md: the table differs from values.yaml: scripts/check-chart --write-table")
    for template in CHART.glob("templates/**/*.*"):
        code = re.sub(r"/\*.*?\*/", "", template.read_text(), flags=re.DOTALL)
        found = re.findall(r"\b(lookup|rand[A-Z]\w*|uuidv4|now|gen[A-Z]\w*)\b", code)
        check(not found, f"{template}: {found}: two renders must be the same")


def main():
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--helm", action="append", required=True, help="a Helm binary; give it once for each version")
    arguments.add_argument("--config-with", metavar="PROGRAM", help="also let this portero check each rendered config.toml")
    arguments.add_argument("--write-table", action="store_true", help="write the README's table of values")
    given = arguments.parse_args()
    files = sorted([*CHART.glob("ci/*.yaml"), *CHART.glob("examples/values-*.yaml")])
    objects = configs = 0
    for values in files:
        things = check_values(given.helm, values)
        objects += len(things)
        configs += check_configs(values.name, things, given.config_with)
    check_refusals(given.helm)
    check_subchart(given.helm)
    check_documents(given.write_table)
    for problem in problems:
        print(f"scripts/check-chart: {problem}", file=sys.stderr)
    summary = f"{len(files)} values files, {objects} objects, {configs} configurations, {len(REFUSED)} refusals"
    print(f"scripts/check-chart: {summary}, {len(problems)} problems")
    sys.exit(1 if problems else 0)


main()
