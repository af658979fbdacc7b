"""CSV rows -> tables and figures."""
