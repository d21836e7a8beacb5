"""Write manifests of delete files; PyIceberg's own writers are for data files alone."""

from __future__ import annotations

from pyiceberg.manifest import ManifestContent, ManifestWriterV2


class DeleteManifestWriter(ManifestWriterV2):
    """Write a manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
