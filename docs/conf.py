"""Settings of the documentation site; `make docs` builds it into out/site."""

import sys
from importlib.metadata import version as installed_version
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "marginpursuit"
author = "The marginpursuit developers"
copyright = author  # noqa: A001 (Sphinx reads this name)
version = release = installed_version("marginpursuit")
language = "en-GB"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "generated_pages",
    "markdown_twins",
    "mathml",
]
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_templates", "_extensions", "README.md"]
templates_path = ["_templates"]
highlight_language = "none"  # of blocks without a language: commands and their output
nitpicky = True
nitpick_ignore_regex = [
    # Inventories of other projects are not downloaded: the site builds without a network.
    ("py:.*", r"(sklearn|numpy|scipy|torch|dask|pandas|polars|matplotlib|collections|typing)\..*"),
]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4

copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

toc_object_entries_show_parents = "hide"
autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# Examples that need an optional package are shown without their output where it is not installed.
_packages = {"robust_boosting": "lightgbm", "robust_head": "torch"}
_not_run = "|".join(name for name, package in _packages.items() if find_spec(package) is None)

sphinx_gallery_conf = {
    "within_subsection_order": "gallery_order.place",
    "default_thumb_file": str(Path(__file__).parent / "_static" / "logo.svg"),
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": rf"plot_(?!{_not_run})" if _not_run else "plot_",
    "abort_on_example_error": True,
    "remove_config_comments": True,
    "capture_repr": (),
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "doc_module": ("marginpursuit",),
    "backreferences_dir": "api/examples",
}

html_math_renderer = "mathml"
html_theme = "pydata_sphinx_theme"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_title = f"marginpursuit {release}"
html_copy_source = False
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": "marginpursuit", "alt_text": "Home of marginpursuit"},
    "navbar_persistent": ["search-button"],
    "github_url": "https://github.com/marginpursuit/marginpursuit",
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "show_prev_next": True,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": ["version"],
}
