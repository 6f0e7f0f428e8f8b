"""Bundles as ZIP files and as folders of manifests: export, import, and the plan of an import."""

from toolcrib.bundles.archive.contents import ArchivedBundle, Contents, contents_of
from toolcrib.bundles.archive.folder import ToolLoss, read_folder, to_native
from toolcrib.bundles.archive.plan import ImportPlan, OnConflict, apply, plan
from toolcrib.bundles.archive.zip_file import MAX_ARCHIVE, export_bundle, read_zip
