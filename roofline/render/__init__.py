"""What is printed: blocks made from answers, and the writers that lay them out."""
