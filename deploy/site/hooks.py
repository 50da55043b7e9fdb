"""Makes links to files outside docs/ work on the site.

A link in docs/ is relative to the file, as code hosts want it: `../jobs/suites/demo.json`. Such a file is
added to the site under `source/`, a Markdown file as a page, with the files that it links to in turn. Links to
folders or to files that do not exist fail.
"""

import pathlib
import posixpath
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import get_plugin_logger
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = "docs/"
SOURCE = "source/"

# Links and images outside of code: `[text](target)`. Code is matched first, and left alone.
LINK = re.compile(r"(?ms)^```.*?^```|`[^`\n]*`(?!\])|(?<=\]\()(?P<target>[^()\s]+)(?=\))")

log = get_plugin_logger(__name__)


def repository_path(site_path: str) -> str:
    """Returns where a page or file of the site is in the repository."""
    return site_path.removeprefix(SOURCE) if site_path.startswith(SOURCE) else DOCS + site_path


def site_path(path: str) -> str:
    """Returns where a file of the repository is on the site."""
    return path.removeprefix(DOCS) if path.startswith(DOCS) else SOURCE + path


def targets(markdown: str, path: str) -> list[str]:
    """Returns the files that a Markdown file of the repository links to, as paths in the repository."""
    found = [match["target"] for match in LINK.finditer(markdown) if match["target"]]
    files = [target.partition("#")[0] for target in found if not re.match(r"[a-z]+:", target)]
    return [posixpath.normpath(posixpath.join(posixpath.dirname(path), file)) for file in files if file]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the linked files outside docs/."""
    todo = [DOCS + file.src_uri for file in files if file.src_uri.endswith(".md")]
    known = set(todo)
    while todo:
        path = todo.pop()
        for target in targets((ROOT / path).read_text(), path):
            if target in known or target.startswith(DOCS):
                continue
            known.add(target)
            if not (ROOT / target).is_file():
                log.warning(f"{path} links to {target}, which is not a file of the repository")
                continue
            files.append(File.generated(config, site_path(target), abs_src_path=str(ROOT / target),
                                        inclusion=InclusionLevel.NOT_IN_NAV))
            if target.endswith(".md"):
                todo.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Rewrites links that leave docs/, or come from there, for the paths of the site."""
    here = page.file.src_uri
    path = repository_path(here)

    def rewritten(match: re.Match[str]) -> str:
        target = match["target"]
        if not target or target.startswith("#") or re.match(r"[a-z]+:", target):
            return match[0]
        file, mark, anchor = target.partition("#")
        wanted = site_path(posixpath.normpath(posixpath.join(posixpath.dirname(path), file)))
        return posixpath.relpath(wanted, posixpath.dirname(here) or ".") + mark + anchor

    return LINK.sub(rewritten, markdown)
