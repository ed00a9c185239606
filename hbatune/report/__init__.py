"""The pictures and parts of the report page: values in, values and SVG out. Pure, without words.

What they say is given by ``cli``; how the page looks is in the templates of the top-level
``report`` folder.
"""
