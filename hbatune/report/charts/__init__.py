"""Charts as SVG: values in, pictures out. Pure; all text comes from the sections."""
