"""What people see of a comparison: its analysis, table, figures and page, from plain results alone."""
