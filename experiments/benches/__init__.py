"""The rows of `make bench`, one module for each part of the package."""
