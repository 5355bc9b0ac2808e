"""Predictions against public measurements, with the textbook roofline's error beside them."""
