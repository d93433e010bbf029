# SPDX-License-Identifier: Apache-2.0
"""Holds answers against the OpenAPI document: the operation has the status, the body fits its schema.

`check(method, path, answer)` is called for every answer that the suite's client gets. Answers are open in
the document, so that a new member breaks no client; here they are closed, so that no member goes undescribed.
Validators are compiled once per schema and process.
"""
import functools
import json
import re
import subprocess

import jsonschema

# Answers that no operation describes: they are about the path, not about an operation of it.
OF_ANY_PATH = {405}

TIMES = jsonschema.FormatChecker(formats=())


@TIMES.checks("date-time")
def is_time(value):
    return value is None or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", value) is not None


def closed(node):
    """The schema with every described object closed."""
    if isinstance(node, list):
        return [closed(value) for value in node]
    if not isinstance(node, dict):
        return node
    node = {key: value if key in ("examples", "example") else closed(value) for key, value in node.items()}
    if node.get("type") == "object" and isinstance(node.get("properties"), dict):
        node.setdefault("additionalProperties", False)
    return node


class Description:
    def __init__(self, text):
        self.document = json.loads(text)
        self.schemas = closed(self.document["components"]["schemas"])
        self.root = {"components": {"schemas": self.schemas}}
        self.resolver = jsonschema.RefResolver.from_schema(self.root)
        paths = sorted(self.document["paths"], key=lambda path: path.count("{"))
        self.patterns = [(re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), self.document["paths"][path])
                         for path in paths]

    @functools.lru_cache(maxsize=None)
    def validator(self, reference):
        return jsonschema.Draft202012Validator({"$ref": reference}, resolver=self.resolver,
                                               format_checker=TIMES)

    def operation(self, method, path):
        """The operation that a request is for, None when no path has it."""
        path, method = path.split("?")[0], "get" if method == "HEAD" else method.lower()
        for pattern, item in self.patterns:
            if pattern.fullmatch(path) and method in item:
                return item[method]
        return None

    def response(self, operation, status):
        response = operation["responses"].get(str(status))
        if response and "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].rsplit("/", 1)[1]]
        return response

    def check(self, method, path, answer):
        operation = self.operation(method, path)
        if operation is None or answer.status in OF_ANY_PATH:
            return
        response = self.response(operation, answer.status)
        assert response, f"{operation['operationId']} does not document {answer!r}"
        if answer.status == 304:
            assert answer.body == b"" and "content" not in response
            return
        content = response.get("content", {})
        kind = (answer.headers.get("Content-Type") or "").split(";")[0].strip()
        if kind not in content and "application/octet-stream" not in content:
            raise AssertionError(f"{operation['operationId']} does not document {kind!r} of {answer!r}")
        reference = content.get(kind, {}).get("schema", {}).get("$ref")
        if reference and answer.body and method != "HEAD":
            self.validator(reference).validate(json.loads(answer.body))


@functools.lru_cache(maxsize=None)
def description(binary):
    return Description(subprocess.run([binary, "--openapi"], capture_output=True, check=True).stdout)
