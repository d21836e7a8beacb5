"""Write manifests of delete files; PyIceberg's own writers only support data files."""

from __future__ import annotations

from pyiceberg.manifest import ManifestContent, ManifestWriterV2


class DeleteManifestWriter(ManifestWriterV2):
    """Writes a manifest of delete files."""

    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}
