"""The documentation site, which `make docs` builds. Nothing in it is loaded from the network, by build or reader."""

import inspect
import os
import re
import sys
from pathlib import Path

from sphinx_gallery.sorting import ExplicitOrder

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_extensions"))
os.environ.setdefault(
    "OMP_NUM_THREADS", "1"
)  # the examples are small: on a busy machine, threads only wait
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # a pipeline in an example reports to nobody

from public_members import (  # noqa: E402
    drop_example,
    first_example,
    methods_by_purpose,
    public_properties,
)

import cfe_faiss  # noqa: E402 - after the extensions' folder, like what follows

project = "cfe_faiss"
author = "the cfe_faiss maintainers"
copyright = author  # noqa: A001 - Sphinx's name for it
version = release = cfe_faiss.__version__

extensions = [
    "command_line",
    "sample_report",
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_extensions",
    "_templates",
    "gallery/*.ipynb",
    "gallery/*.py",
    "gallery/*.json",
]
templates_path = ["_templates"]
suppress_warnings = [
    "config.cache"
]  # the gallery's order and the templates' functions cannot be pickled

# A name of ours in a cross reference must be one that the reference documents. Other packages' names are not looked up:
# their inventories are on the network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!cfe_faiss\b).*")]

# Two names that differ in case only need pages whose names differ where the file system ignores case.
autosummary_filename_map = {
    "cfe_faiss.audit.Report": "cfe_faiss.audit.Report-class",
}
autosummary_context = {
    "first_example": first_example,
    "methods_by_purpose": methods_by_purpose,
    "public_properties": public_properties,
}
autodoc_typehints = "none"  # signatures name their arguments; types and shapes are in the text
numpydoc_show_class_members = (
    False  # the templates list them, without what FAISS's and other base classes bring
)
numpydoc_xref_param_type = False
maximum_signature_line_length = 88  # a longer one has a line for each parameter

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

EXAMPLES = [
    "plot_evidence_on_patients.py",
    "plot_planted_bias.py",
    "audit_own_model.py",
    "plot_explainer.py",
    "langchain_evidence.py",
    "llama_index_evidence.py",
    "haystack_evidence.py",
    "plot_text_documents.py",
    "sklearn_neighbors.py",
    "faiss_dropin.py",
    "plot_recall_and_speed.py",
    "plot_weights_of_the_paper.py",
]
LEFT_OUT = [
    "audit_german_bail.py"
]  # it needs the paper's graphs, which the repository does not hold
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",  # all of them are run
    "ignore_pattern": "|".join(map(re.escape, LEFT_OUT)),
    "within_subsection_order": ExplicitOrder([*EXAMPLES, "*"]),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 10**6,
    "write_computation_times": False,
    "remove_config_comments": True,
    "capture_repr": (),
    "reset_modules": ("matplotlib",),
}

html_theme = "pydata_sphinx_theme"
html_title = "cfe_faiss"
html_static_path = ["_static"]
html_css_files = ["site.css"]
toc_object_entries_show_parents = "hide"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "cfe_faiss"},
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": ["sphinx-version"],
}
html_sidebars = {
    "index": [],
    "benchmarks/**": [],
    "glossary": [],
    "changelog": [],
    "contributing": [],
}


def _example_moved(_app, what, _name, _object, _options, lines):
    """Drop the example of a class, which its page shows at the top."""
    if what == "class":
        drop_example(lines)


def _signature(_app, what, _name, found, _options, signature, _returns):
    """Hide the constructor of a class whose docstring says that others make it."""
    if what == "class" and "\n\nMade by " in (inspect.getdoc(found) or ""):
        return "", None
    return None


def setup(app):
    """Connect what happens to docstrings, before numpydoc reads them."""
    app.connect("autodoc-process-docstring", _example_moved, priority=100)
    app.connect("autodoc-process-signature", _signature, priority=900)
