"""The report page: sections with sentences and tables, and charts as SVG. Pure.

``summary`` builds the page from the sections of the other modules. ``charts`` draws the charts with
``svg``. The page contains no scripts. ``templates`` defines its appearance.
"""
