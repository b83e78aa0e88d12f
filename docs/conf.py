"""The documentation site: Sphinx over the same Markdown that reads as plain text (`make docs`).

Nothing is fetched while it builds or when it is opened: system fonts, no scripts or styles from elsewhere, formulas as
MathML, which browsers typeset themselves. Every link between pages, every anchor and every name in a signature is
checked, and a warning is an error.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from pygments.lexers import TextLexer  # type: ignore[import-untyped]
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

from heterosag import __version__

ROOT = Path(__file__).resolve().parents[1]

project = "HeteroSAg"
author = "The HeteroSAg authors"
project_copyright = author
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# --- pages --------------------------------------------------------------------------------------------------------

exclude_patterns = ["summaries/**"]
myst_heading_anchors = 4  # headings can be linked to as on GitHub
myst_enable_extensions = ["dollarmath", "tasklist"]  # $formulas$ as on GitHub
myst_dmath_allow_digits = False  # an amount of money is no formula
html_math_renderer = "mathml"
highlight_language = "none"
smartquotes = False  # a flag's two dashes stay two dashes
html_theme = "furo"
html_title = f"HeteroSAg {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_copy_source = False
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options: dict[str, Any] = {"top_of_page_buttons": []}

# --- the reference from docstrings --------------------------------------------------------------------------------

# Docstrings are plain text with `names` in backticks; a name in a signature must be documented if it is ours.
default_role = "literal"
autodoc_default_options = {"members": True, "member-order": "bysource", "no-value": True}
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"
nitpick_ignore_regex = [
    ("py:.*", r"(?!heterosag\b).*"),
    (
        "py:class",
        r"heterosag\.(crypto\.keys\.RoundSecrets|protocol\.steps\.Polynomials|protocol\.rounding\.Rounding)",
    ),  # for tests
    ("py:class", r"heterosag\.training\.epochs\.Epoch"),  # what a run hands to itself
    ("py:class", r"heterosag\.aggregation\.clipping\.P"),  # a plan, or cohorts: whichever was given
]

# --- links out of this folder -------------------------------------------------------------------------------------

# Pages of the repository's root that the site shows, and what stands for the README there.
MIRRORED = {
    "ARCHITECTURE.md": "project/architecture",
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "README.md": "index",
    "SECURITY.md": "project/security",
}


class LinksOut(SphinxTransform):
    """Links to files of the repository that are no pages here: to their mirror, or plain words if they have none.

    A link to something that does not exist is left as it is, and Sphinx complains of it.
    """

    default_priority = 400

    def apply(self, **given: Any) -> None:
        """Look at every link that MyST has not recognised as a page."""
        del given
        folder = Path(self.env.doc2path(self.env.docname)).parent
        mirrored = self.env.docname.startswith("project/")  # its links are relative to the root
        for link in list(self.document.findall(addnodes.pending_xref)):
            if link.get("reftype") != "myst" or link.get("reftarget") in self.env.found_docs:
                continue
            name, _, anchor = str(link["reftarget"]).partition("#")
            page = link.get("refdomain") == "doc"  # MyST then gives the name from this folder on, without its ending
            path = Path(self.env.srcdir) / f"{name}.md" if page else folder / name
            if mirrored and not path.exists():
                path = ROOT / path.name
            mirror = MIRRORED.get(os.path.relpath(path, ROOT))
            if mirror is not None:
                wanted = None if mirror == "index" else link.get("reftargetid") or anchor or None
                link["refdomain"], link["reftarget"], link["reftargetid"] = "doc", mirror, wanted
            elif name and path.exists():
                link.replace_self(link.children)


# --- formulas -----------------------------------------------------------------------------------------------------


def write_formula(writer: Any, node: nodes.math) -> None:
    """A formula in a line, as MathML."""
    writer.body.append(str(tex2mathml(node.astext())))
    raise nodes.SkipNode


def write_equation(writer: Any, node: nodes.math_block) -> None:
    """A formula in a line of its own."""
    writer.body.append(f'<div class="equation">{tex2mathml(node.astext(), as_block=True)}</div>')
    raise nodes.SkipNode


# --- signatures ---------------------------------------------------------------------------------------------------

# Classes that are not made by calling them, and one whose fields have a page of their own.
WITHOUT_SIGNATURE = ("Plan", "Identity", "Phase", "ClientPhase", "ServerPhase", "ReleaseLog", "Guard", "TrainConfig")
_ARRAY = re.compile(
    r"~?numpy\.ndarray\[tuple\[~?typing\.Any, \.\.\.\], ~?numpy\.dtype\[~?numpy\.(\w+)(\[~?typing\.Any\])?\]\]"
)


def shorten_signature(*given: Any) -> tuple[str, str | None] | None:
    """Leave out the signature of what nobody calls; say arrays and made defaults shortly."""
    _, kind, name, _, _, signature, returned = given
    if kind == "class" and name.rpartition(".")[2] in WITHOUT_SIGNATURE:
        return "", None
    if not signature:
        return None
    short = _ARRAY.sub(r"NDArray[\1]", signature.replace("<factory>", "..."))
    return short, returned and _ARRAY.sub(r"NDArray[\1]", returned)


def setup(app: Sphinx) -> None:
    """Add what is above."""
    app.add_transform(LinksOut)
    app.connect("autodoc-process-signature", shorten_signature)
    app.add_html_math_renderer("mathml", inline_renderers=(write_formula, None), block_renderers=(write_equation, None))
    app.add_lexer("mermaid", TextLexer)  # the diagrams read well as text
