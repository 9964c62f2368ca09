"""The OpenAPI description where FastAPI cannot know it: bodies, problems, names of models."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from vitreous.serve.body import FORM, JSON, RAW
from vitreous.serve.gate import OPEN
from vitreous.serve.problem import MEDIA_TYPE, TYPES
from vitreous.serve.schema import ImagesInJSON, ProblemDetails

DESCRIPTION = """Models that look at images. Send an image as it is, several as a form, or base64
in JSON; options are parameters of the address. Errors are problem details (RFC 9457)."""
_REFERENCE = {"$ref": "#/components/schemas/ProblemDetails"}
BINARY = {"type": "string", "format": "binary"}
BODY = {
    "requestBody": {
        "required": True,
        "content": {
            RAW: {"schema": BINARY},
            FORM: {
                "schema": {
                    "type": "object",
                    "properties": {"image": {"type": "array", "items": BINARY, "minItems": 1}},
                    "required": ["image"],
                }
            },
            JSON: {"schema": {"$ref": "#/components/schemas/ImagesInJSON"}},
        },
    }
}


def problem(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {
        status: {
            "description": next(kind for kind, number in TYPES.items() if number == status),
            "content": {MEDIA_TYPE: {"schema": _REFERENCE}},
        }
        for status in statuses
    }


PROBLEMS = problem(401, 421, 503)


def answers(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """What the routes that take images answer."""
    return {
        200: {"model": model},
        **problem(400, 401, 403, 404, 408, 413, 415, 421, 422, 429, 500, 503, 504),
    }


def describe(app: FastAPI, names: list[str], *, with_token: bool) -> dict[str, Any]:
    """The document; models have the names that are served here."""
    made = app.openapi()
    if with_token:
        made.setdefault("components", {})["securitySchemes"] = {
            "token": {"type": "http", "scheme": "bearer"}
        }
        made["security"] = [{"token": []}]
        for path in OPEN:
            made["paths"][path]["get"]["security"] = []
    schemas = made.setdefault("components", {}).setdefault("schemas", {})
    _, more = models_json_schema(
        [(ImagesInJSON, "validation"), (ProblemDetails, "serialization")],
        ref_template="#/components/schemas/{model}",
    )
    schemas |= more["$defs"]
    for path in made["paths"].values():
        for operation in path.values():
            for parameter in operation.get("parameters", []):
                if parameter["in"] == "path" and parameter["name"] == "name":
                    parameter["schema"] = {"type": "string", "enum": names}
    return made
