"""Hugging Face configs as people have them, read into specs: never guessed, always explained."""
