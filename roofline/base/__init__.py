"""What everything else stands on: errors, units, YAML, schemas, shipped data, files."""
