"""What Sphinx is told about the site; `tools/site/__main__.py` stages the pages and calls it."""

import tomllib
from pathlib import Path

_about = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text())["project"]

project = "Magnetar"
author = _about["authors"][0]["name"]
version = release = _about["version"]
copyright = author

extensions = ["myst_parser"]
root_doc = "index"
myst_heading_anchors = 6  # headings are anchors, by GitHub's spelling, so that links work there and here
suppress_warnings = [
    "toc.not_included",  # decisions: their index has them, and a hundred and fifty rows are no sidebar
    "myst.header",  # a README may begin with a heading of the second level
    "misc.highlighting_failure",  # examples with "..." in them
]

html_theme = "furo"
html_title = f"Magnetar {version}"
html_copy_source = False  # the pages themselves are there, as .md
html_show_sourcelink = False
html_show_sphinx = False
html_show_search_summary = False  # summaries are fetched, which browsers refuse to pages of file://
html_permalinks_icon = "#"
html_last_updated_fmt = None  # the same pages make the same site
html_theme_options = {"navigation_with_keys": True}


def setup(app):
    """Make the sidebar of titles alone: with the headings of all pages for each page it is half of a build's time."""
    titles = {}

    def page(app, name, template, context, doctree):
        env, whole = app.env, context.get("toctree")
        if not titles:
            titles.update((each, _title_of(toc)) for each, toc in env.tocs.items())

        def sidebar(**given):
            headings, env.tocs = env.tocs, titles
            try:
                return whole(**given)
            finally:
                env.tocs = headings

        if whole:
            context["toctree"] = sidebar

    app.connect("html-page-context", page, priority=100)  # before Furo
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _title_of(toc):
    """Return a page's list of headings with the first alone."""
    first = toc.deepcopy()
    for item in first.children[1:]:
        first.remove(item)
    for below in first.children[0].children[1:] if first.children else ():
        first.children[0].remove(below)
    return first
