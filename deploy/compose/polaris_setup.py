"""Makes the catalog that Headrace and Trino use in a Polaris that answers. Idempotent: what is there already stays as it is.

The environment says what is to be made: POLARIS_URL, POLARIS_CREDENTIAL (`id:secret`), POLARIS_CATALOG, POLARIS_LOCATION,
POLARIS_S3_ENDPOINT, POLARIS_S3_REGION. Polaris hands no keys of the object store out: all who read tables have their own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

_CONFLICT = 409


def set_up(environ: Mapping[str, str]) -> None:
    """Makes the catalog, and lets its administrators read and write what is in it."""
    url, name = environ["POLARIS_URL"], environ["POLARIS_CATALOG"]
    client, _, secret = environ["POLARIS_CREDENTIAL"].partition(":")
    asked = {"grant_type": "client_credentials", "client_id": client, "client_secret": secret, "scope": "PRINCIPAL_ROLE:ALL"}
    with urlopen(Request(f"{url}/api/catalog/v1/oauth/tokens", data=urlencode(asked).encode()), timeout=30) as answer:
        token = json.load(answer)["access_token"]
    catalog = {
        "name": name,
        "type": "INTERNAL",
        "properties": {"default-base-location": environ["POLARIS_LOCATION"]},
        "storageConfigInfo": {
            "storageType": "S3",
            "allowedLocations": [environ["POLARIS_LOCATION"]],
            "endpoint": environ["POLARIS_S3_ENDPOINT"],
            "region": environ["POLARIS_S3_REGION"],
            "pathStyleAccess": True,
            "stsUnavailable": True,
        },
    }
    catalogs = f"{url}/api/management/v1/catalogs"
    made = _send("POST", catalogs, {"catalog": catalog}, token=token)
    grant = {"grant": {"type": "catalog", "privilege": "CATALOG_MANAGE_CONTENT"}}
    _send("PUT", f"{catalogs}/{name}/catalog-roles/catalog_admin/grants", grant, token=token)
    print(f"catalog {name}: {'made' if made else 'was there already'}")


def _send(method: str, url: str, body: object, *, token: str) -> bool:
    """Says whether something was made; False where it was there already."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(url, data=json.dumps(body).encode(), headers=headers, method=method), timeout=30):
            return True
    except HTTPError as error:
        if error.code == _CONFLICT:
            return False
        said = error.read().decode(errors="replace")
        print(f"{method} {url} was answered with {error.code}: {said}", file=sys.stderr)
        raise


if __name__ == "__main__":
    set_up(os.environ)
