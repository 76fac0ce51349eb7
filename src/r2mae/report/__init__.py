"""The report of a comparison: its analysis, table, figures and page. It reads plain results alone."""
