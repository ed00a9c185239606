"""The report page: sections with sentences and tables, and charts as SVG. Pure: values in and out.

It may not put scripts into the page. How the page looks is in ``templates``.
"""
