"""What Sphinx is told. `make docs` builds what docs/build.py puts together; nothing in it needs a network."""

project = "Primus"
author = "the Primus authors"
extensions = ["myst_parser"]
myst_heading_anchors = 4
html_theme = "furo"
html_title = "Primus"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]
highlight_language = "text"  # a block that names no language is commands or output
nitpicky = True
smartquotes = False  # options keep their two dashes
html_show_copyright = False
