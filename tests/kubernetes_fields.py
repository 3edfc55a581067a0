"""Whether an object has only fields that the API of Kubernetes knows, each of the kind that it is to be."""

from __future__ import annotations

import re
from typing import Any

_PLAIN: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "bool": (bool,), "object": (object,)}


def unknown_fields(item: Any, kind: str, path: str = "") -> list[str]:
    """The paths of fields that the client's class for this kind does not have, or has as something else."""
    from kubernetes_asyncio.client import models  # a second, and tens of megabytes

    if (many := re.fullmatch(r"list\[(.+)\]", kind)) is not None:
        if not isinstance(item, list):
            return [f"{path} is no list"]
        return [wrong for at, one in enumerate(item) for wrong in unknown_fields(one, many[1], f"{path}[{at}]")]
    if (table := re.fullmatch(r"dict\(str, (.+)\)", kind)) is not None:
        if not isinstance(item, dict):
            return [f"{path} is no table"]
        return [wrong for key, one in item.items() for wrong in unknown_fields(one, table[1], f"{path}.{key}")]
    if kind in _PLAIN:
        return [] if isinstance(item, _PLAIN[kind]) else [f"{path} is no {kind}"]
    model = getattr(models, kind)
    known = {model.attribute_map[name]: of for name, of in model.openapi_types.items()}
    wrong = [f"{path}.{key} is not known" for key in item if key not in known]
    return wrong + [
        each for key, one in item.items() if key in known for each in unknown_fields(one, known[key], f"{path}.{key}")
    ]
