"""Charts as SVG: values in, pictures out. Pure, without words."""
