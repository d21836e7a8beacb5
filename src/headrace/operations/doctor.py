"""Check everything that Headrace needs: what is available, where it comes from, and how to fix the rest."""

from __future__ import annotations

import logging
import platform
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from headrace.errors import HeadraceError
from headrace.http.client import without_secrets
from headrace.iceberg.catalog.tables import catalog_exists, list_namespaces, open_catalog
from headrace.logs import log_trace
from headrace.plurals import count_of
from headrace.servers.connect import running_connect
from headrace.servers.embedded import RunningService
from headrace.servers.jars import GROUPS, OPTIONAL, cached_jars
from headrace.servers.java import choose_java
from headrace.servers.kafka import running_kafka
from headrace.servers.ports import HOST
from headrace.servers.postgres import running_postgres, without_password
from headrace.servers.registry import running_registry
from headrace.servers.trino import running_trino
from headrace.settings import FILE, PASSED_ON_SECTIONS, SECRETS, SETTING_SPECS, Settings, without_passwords
from headrace.settings.setting_specs import Kind, SettingSpec
from headrace.spark.session import spark_groups

_LOG = logging.getLogger(__name__)
_FREE_BYTES = 2 * 1024**3


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    subject: str
    state: Literal["ok", "attention", "broken"]
    says: str


@dataclass(frozen=True)
class SettingOrigin:
    name: str
    value: str
    origin: str


def examine(settings: Settings, *, environ: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return the results of all checks, in the order in which a run needs the parts."""
    return (
        Finding("Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"),
        _check_java(environ),
        *(_check_jars(group) for group in _groups(settings)),
        _check_disk(settings),
        _check_server("Kafka", settings.kafka_bootstrap_servers, running_kafka(settings)),
        _check_server("Postgres", _own_postgres(settings), running_postgres(settings)),
        _check_server("Connect", _own(settings.connect_url), running_connect(settings)),
        _check_server("registry", _own(settings.registry_url), running_registry(settings)),
        _check_server("Trino", None, running_trino(settings)),
        _check_catalog(settings),
    )


def origins_of(settings: Settings) -> tuple[SettingOrigin, ...]:
    """Return every setting with its value and the value's origin."""
    profile = SettingOrigin("profile", settings.profile, settings.origins["profile"])
    from_file = f"{FILE} [{settings.profile}]"
    return (
        profile,
        *(SettingOrigin(spec.name, _shown(spec, settings), settings.origins[spec.name]) for spec in SETTING_SPECS),
        *(
            SettingOrigin(f"{spec.name}.{name}", value, from_file)
            for spec in PASSED_ON_SECTIONS
            for name, value in getattr(settings, spec.field).items()
        ),
        *(SettingOrigin(variable, "(set)", "environment") for name, variable in SECRETS.items() if getattr(settings, name)),
    )


def _shown(known: SettingSpec, settings: Settings) -> str:
    """Return the setting's value for display, without passwords."""
    value = getattr(settings, known.field)
    if value is None or value == "":
        return known.empty
    show = _SHOWN.get(known.kind)
    return show(value) if show else str(value)


def _groups(settings: Settings) -> tuple[str, ...]:
    """Return the groups of jars that every run needs, and the ones that these settings need."""
    always = {path.name for path in GROUPS.iterdir() if path.is_dir()} - OPTIONAL
    return tuple(sorted(always | set(spark_groups(settings))))


def _check_java(environ: Mapping[str, str]) -> Finding:
    try:
        java = choose_java(environ)
    except HeadraceError as error:
        return Finding("Java", "broken", str(error))
    text = f"Java {java.version} from {java.origin}"
    return Finding("Java", "attention", f"{text}. {java.note}") if java.note else Finding("Java", "ok", text)


def _check_jars(group: str) -> Finding:
    try:
        jars = cached_jars(group)
    except HeadraceError as error:
        return Finding(f"jars for {group}", "broken", str(error))
    if jars:
        return Finding(
            f"jars for {group}", "ok", f"{len(jars)} in the cache, {sum(jar.stat().st_size for jar in jars) >> 20} MB"
        )
    if group in OPTIONAL:
        return Finding(f"jars for {group}", "ok", f"not in the cache; optional. To download them, run: headrace up {group}")
    return Finding(f"jars for {group}", "attention", "not in the cache yet: the first run downloads them")


def _check_disk(settings: Settings) -> Finding:
    folder = settings.home if settings.home.exists() else settings.home.parent
    free = shutil.disk_usage(folder).free
    text = f"{free / 1024**3:.1f} GB free under {settings.home}"
    return Finding("disk", "ok", text) if free > _FREE_BYTES else Finding("disk", "attention", f"only {text}")


def _check_server(title: str, own: str | None, service: RunningService | None) -> Finding:
    if own:
        return Finding(title, "ok", f"your own server, not checked: {own}")
    if service:
        return Finding(title, "ok", f"runs on {HOST}:{service.port} (pid {service.pid})")
    return Finding(title, "ok", "not running; commands that need it start it")


def _check_catalog(settings: Settings) -> Finding:
    if not catalog_exists(settings):
        return Finding("catalog", "ok", "does not exist yet; the first landing creates it")
    try:
        namespaces = list(list_namespaces(open_catalog(settings)))
    except HeadraceError as error:
        return Finding("catalog", "broken", f"{error.what}. Check catalog.uri.")
    except Exception as error:
        log_trace(_LOG, "the catalog does not answer", error, level=logging.DEBUG)
        return Finding("catalog", "broken", f"does not answer: {settings.without_secrets(str(error))}. Check catalog.uri.")
    return Finding("catalog", "ok", f"answers; {count_of(len(namespaces), 'namespace')}")


def _own_postgres(settings: Settings) -> str | None:
    return without_password(settings.postgres_url) if settings.postgres_url else None


def _own(url: str | None) -> str | None:
    return without_secrets(url) if url else None


_SHOWN: dict[Kind, Callable[..., str]] = {
    "bool": lambda value: str(value).lower(),
    "web": without_secrets,
    "postgres": without_password,
    "database": without_passwords,
}
"""The display functions of the kinds of settings that need one."""
