#!/usr/bin/env python3
"""Pin every image of compose.yaml and the Dockerfile to the digest that its registry has for its tag now.

    python scripts/pin_images.py            # asks the registries, rewrites both files; then read the diff
    python scripts/pin_images.py --check    # asks nobody; exit code 1 and a list where an image has no digest

Images that are built here (headrace…) and build stages are left alone.
"""

from __future__ import annotations

import json
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILES = ("compose.yaml", "Dockerfile")
IMAGE = re.compile(
    r"^(?P<before>\s*image: |FROM )(?P<name>[\w./-]+):(?P<tag>[\w.-]+)(?P<digest>@sha256:[0-9a-f]{64})?", re.MULTILINE
)
OWN = ("headrace", "headrace-dagster")
MANIFESTS = ", ".join(
    (
        "application/vnd.oci.image.index.v1+json",
        "application/vnd.docker.distribution.manifest.list.v2+json",
        "application/vnd.oci.image.manifest.v1+json",
        "application/vnd.docker.distribution.manifest.v2+json",
    )
)


def find_unpinned(text: str) -> list[str]:
    """Return the images of a file that have no digest."""
    images = (match for match in IMAGE.finditer(text) if match["name"] not in OWN and not match["digest"])
    return [f"{match['name']}:{match['tag']}" for match in images]


def pin(text: str, resolve: Callable[[str, str], str]) -> str:
    """Return the text of a file with the digest that `resolve` gives for each image's name and tag."""

    def pinned(match: re.Match[str]) -> str:
        if match["name"] in OWN:
            return match[0]
        return f"{match['before']}{match['name']}:{match['tag']}@{resolve(match['name'], match['tag'])}"

    return IMAGE.sub(pinned, text)


def locate(name: str) -> tuple[str, str]:
    """Return the address of an image's registry and its repository there, as Docker reads its name."""
    first, _, rest = name.partition("/")
    if rest and ("." in first or ":" in first or first == "localhost"):
        return f"https://{first}", rest
    return "https://registry-1.docker.io", name if rest else f"library/{name}"


def ask_registry(name: str, tag: str, *, at: Callable[[str], tuple[str, str]] = locate) -> str:
    """Return the digest of a tag's manifest list. Raises an OSError or a ValueError where the registry gives none."""
    registry, repository = at(name)
    request = urllib.request.Request(
        f"{registry}/v2/{repository}/manifests/{tag}", method="HEAD", headers={"Accept": MANIFESTS}
    )
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise
        request.add_header("Authorization", f"Bearer {_token(error.headers.get('WWW-Authenticate', ''))}")
        answer = urllib.request.urlopen(request, timeout=30)
    digest = str(answer.headers.get("Docker-Content-Digest", ""))
    if not re.fullmatch(r"sha256:[0-9a-f]{64}", digest):
        raise ValueError(f"{name}:{tag}: the registry gave no sha256 digest")
    return digest


def _token(challenge: str) -> str:
    """Return the token for anonymous pulls that a registry's challenge asks for."""
    parts = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
    query = urllib.parse.urlencode({name: parts[name] for name in ("service", "scope") if name in parts})
    with urllib.request.urlopen(f"{parts['realm']}?{query}", timeout=30) as answer:
        body = json.load(answer)
    return str(body.get("token") or body["access_token"])


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        missing = [f"{name}: {image}" for name in FILES for image in find_unpinned((ROOT / name).read_text(encoding="utf-8"))]
        print("\n".join(missing) or "every image is pinned")
        return 1 if missing else 0
    for name in FILES:
        path = ROOT / name
        path.write_text(pin(path.read_text(encoding="utf-8"), ask_registry), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
