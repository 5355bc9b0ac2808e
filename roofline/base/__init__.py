"""What everything else stands on: errors, units, YAML, schemas, shipped data, files."""

__version__ = "0.1.0"
