"""Hooks of MkDocs. Links of the manual to files outside of docs work in the repository; on the site
these files are pages, too, under their paths in the repository."""

import posixpath
import re
from pathlib import Path

from mkdocs.structure.files import File

LINK = re.compile(r"\]\((?![a-z]+:|#)([^)\s#]+)(#[^)\s]*)?\)")
ROOT = Path(__file__).parent.parent


def in_repository(uri):
    """Returns the path in the repository of a file of the site."""
    return "docs/" + uri if (ROOT / "docs" / uri).exists() else uri


def site_uri(path):
    """Returns the URI in the site of a path in the repository."""
    return path.removeprefix("docs/")


def target(uri, link):
    """Returns the path in the repository that a link on a page leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(in_repository(uri)), link))


def on_files(files, config):
    waiting = [f for f in files if f.is_documentation_page()]
    while waiting:
        page = waiting.pop()
        for link, _ in LINK.findall(page.content_string):
            path = target(page.src_uri, link)
            if path.startswith(("docs/", "../")) or not (ROOT / path).is_file() or files.get_file_from_path(path):
                continue
            added = File.generated(config, path, abs_src_path=str(ROOT / path))
            files.append(added)
            if added.is_documentation_page():
                waiting.append(added)
    return files


def on_page_markdown(markdown, page, **_):
    here = posixpath.dirname(page.file.src_uri)

    def replaced(link):
        uri = site_uri(target(page.file.src_uri, link[1]))
        return f"]({posixpath.relpath(uri, here or '.')}{link[2] or ''})"

    return LINK.sub(replaced, markdown)
