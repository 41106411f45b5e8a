#!/usr/bin/env python3
"""Turns Kubernetes' OpenAPI description into strict JSON schemas, the way kubeconform looks them up.

Usage: kubernetes_schemas.py <swagger.json> <output folder>
Each kind becomes <kind>[-<group>]-<version>.json, a reference into definitions.json. Objects whose fields are known refuse
others, as the API server does under strict field validation.
"""
import json
import pathlib
import sys


def strict(node):
    """The node, recursively, as draft-07 JSON schema that refuses unknown fields."""
    if isinstance(node, list):
        return [strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    if node.get("format") == "int-or-string":
        return {"type": ["integer", "string"]}
    node = {key: strict(value) for key, value in node.items()}
    if isinstance(node.get("properties"), dict) and node.get("type") == "object":
        node.setdefault("additionalProperties", False)
    return node


def main():
    source, target = map(pathlib.Path, sys.argv[1:])
    target.mkdir(parents=True, exist_ok=True)
    definitions = json.loads(source.read_text(encoding="utf-8"))["definitions"]
    (target / "definitions.json").write_text(json.dumps({"definitions": strict(definitions)}), encoding="utf-8")
    for name, definition in definitions.items():
        kinds = definition.get("x-kubernetes-group-version-kind", [])
        if len(kinds) != 1:  # options types such as DeleteOptions belong to every group
            continue
        parts = [kinds[0]["kind"], kinds[0]["group"].split(".")[0], kinds[0]["version"]]
        reference = {"$ref": f"definitions.json#/definitions/{name}"}
        (target / ("-".join(filter(None, parts)).lower() + ".json")).write_text(json.dumps(reference), encoding="utf-8")


if __name__ == "__main__":
    main()
