"""The version of the package, which records of runs name too."""

__all__ = ["__version__"]

__version__ = "0.2.0"
