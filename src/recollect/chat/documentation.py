"""The API's page, made from its OpenAPI description. FastAPI's own loads scripts from other sites; this does not."""

import html
import json
from typing import Any

_STYLE = """
:root { color-scheme: light dark; --ink: #1b2130; --quiet: #566073; --line: #d9dee8; --paper: #fff; --accent: #1f5fbf; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8ebf2; --quiet: #a3adc0; --line: #333b4c; --paper: #12151c; --accent: #8ab4ff; } }
body { font: 1rem/1.6 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       max-width: 50rem; margin: 0 auto; padding: 2.5rem 1.25rem; }
h1 { font-size: 1.5rem; margin: 0; } h2 { font-size: 1rem; margin: 0; } p { margin: .4rem 0; }
section { border-top: 1px solid var(--line); padding: 1.25rem 0; }
code, pre { font: .875rem/1.5 ui-monospace, monospace; } pre { overflow-x: auto; color: var(--quiet); }
.method { color: var(--accent); font-weight: 700; } .quiet { color: var(--quiet); } a { color: var(--accent); }
"""


def documentation(description: dict[str, Any]) -> str:
    info = description["info"]
    sections = [
        _section(method, path, operation, description)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    ]
    title = html.escape(f"{info['title']} {info['version']}")
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<style>{_STYLE}</style><h1>{title}</h1><p class='quiet'>{html.escape(info.get('summary', ''))} "
        "<a href='/openapi.json'>openapi.json</a> · <a href='/'>chat</a></p>"
        f"{''.join(sections)}</html>"
    )


def _section(method: str, path: str, operation: dict[str, Any], description: dict[str, Any]) -> str:
    rows = [
        f"<p><code>{html.escape(each['name'])}</code> <span class='quiet'>{html.escape(each['in'])}"
        f"{', required' if each.get('required') else ''}. {html.escape(each.get('description', ''))}</span></p>"
        for each in operation.get("parameters", [])
    ]
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema")
    answer = (
        operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema")
    )
    for name, schema in (("sends", body), ("gets", answer)):
        if schema:
            shape = json.dumps(_shape(schema, description), indent=2, ensure_ascii=False)
            rows.append(f"<p class='quiet'>{name}</p><pre>{html.escape(shape)}</pre>")
    text = html.escape(operation.get("description", ""))
    return (
        f"<section><h2><span class='method'>{method.upper()}</span> <code>{html.escape(path)}</code></h2>"
        f"<p>{html.escape(operation.get('summary', ''))}</p><p class='quiet'>{text}</p>{''.join(rows)}</section>"
    )


def _shape(schema: dict[str, Any], description: dict[str, Any]) -> Any:
    """A schema as an example: field names with the names of their types."""
    if "$ref" in schema:
        found: Any = description
        for part in schema["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        return _shape(found, description)
    if "anyOf" in schema:
        return " or ".join(str(_shape(each, description)) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return [_shape(schema.get("items", {}), description)]
    if "properties" in schema:
        return {name: _shape(each, description) for name, each in schema["properties"].items()}
    return schema.get("type", "any")
