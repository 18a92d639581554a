"""Runs in simulated time of which figures and calibration are made: what runs, what is measured, how it is kept."""
