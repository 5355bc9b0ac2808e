"""The Python functions: one for each question, friendly values in, frozen values out."""
