"""What MkDocs asks of this project: pages of the API from docstrings, and links to files beside the documentation."""

from __future__ import annotations

import posixpath
import re

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

API = ("detlab", "detlab.core", "detlab.pytorch", "detlab.client")
_LINK = re.compile(r"(\]\(|(?:src|srcset|href)=\")((?:\.\./)+[^)\s\"#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each module of the API: the repository has none, because they say what the docstrings say."""
    package = griffe.load("detlab", search_paths=["harness"], resolve_aliases=False)
    for name in API:
        module = package[name.partition(".")[2]] if "." in name else package
        files.append(File.generated(config, f"reference/api/{name}.md", content=page_of(name, module)))
    return files


def page_of(module: str, found: griffe.Object | griffe.Alias) -> str:
    """Return the page of a module: its docstring and each name that it exports."""
    exported = [
        name
        for name, member in found.members.items()
        if not name.startswith("_")
        and (member.target_path.startswith("detlab.") if member.is_alias else not member.is_module)
    ]
    names = "".join(f"\n        - {name}" for name in sorted(exported, key=str.lower))
    options = f"show_root_heading: false\n      show_root_toc_entry: false\n      members:{names}"
    return f"# {module}\n\n::: {module}\n    options:\n      {options}\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Have links to files that are no part of the site lead to the repository."""

    def to_the_repository(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page.file.src_uri), link[2]))
        inside = target.removeprefix("docs/")
        if target != inside and files.get_file_from_path(inside):
            return link[0]
        kind = "blob" if "." in posixpath.basename(target) else "tree"
        return f"{link[1]}{config.extra['repository']}/{kind}/main/{target}"

    return _LINK.sub(to_the_repository, markdown)
