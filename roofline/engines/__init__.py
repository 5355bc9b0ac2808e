"""What serving engines say about acceptance: their logs, metric pages and JSON, one file each."""
