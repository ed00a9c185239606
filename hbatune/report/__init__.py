"""The report page: sections with sentences and tables, and charts as SVG. Pure: values in and out.

``summary`` makes the page of its sections, one module for each; ``charts`` draws, with ``layout``
and ``svg``. It may not put scripts into the page. How the page looks is in ``templates``.
"""
