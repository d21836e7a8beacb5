"""One secured broker for all tests of profiles."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from tests.profiles.secured_broker import SecuredBroker, secured_broker


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    if not shutil.which("openssl"):
        pytest.skip("certificates are made with openssl")
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running
