"""Many runs and what they show together: figures, sweeps, chaos, training, and calibration of the scale model."""
