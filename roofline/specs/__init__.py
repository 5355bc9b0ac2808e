"""What exists, as YAML states it: accelerators, hosts, networks, engines, formats, placements."""
