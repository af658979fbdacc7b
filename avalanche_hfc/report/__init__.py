"""CSV rows -> tables, figures, one HTML page."""

from avalanche_hfc.report.classes import pictures_of, pictures_of_recipe
from avalanche_hfc.report.sections import write_report
from avalanche_hfc.report.tables import compare

__all__ = ["write_report", "pictures_of", "pictures_of_recipe", "compare"]
