"""What else one can ask: schedules, comparisons, memory, goals, loads, live servers, sweeps."""
